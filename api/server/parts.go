package server

import (
	"slices"
	"strings"

	"evenkeel/api/v1"
)

// PartParams ask for a part of a list. (Exported because huma reads embedded structs only then.)
type PartParams struct {
	Search string `query:"search" maxLength:"253" doc:"Only items with each of these words in their name, their state, or the host they are on; upper and lower case are the same."`
	Offset int    `query:"offset" minimum:"0" doc:"With limit: how many items of the list come before the first that is answered."`
	Limit  int    `query:"limit" minimum:"0" maximum:"1000" doc:"At most so many items, and how many there are in all; 0: all of them."`
}

// portion is a part of a list under way. Items are offered to it in order, and only those that the part has are made: a part of a long list
// costs little more than its length.
type portion[T any] struct {
	asked PartParams
	terms []string
	out   v1.Part[T]
}

func listPart[T any](p PartParams) *portion[T] {
	return &portion[T]{asked: p, terms: strings.Fields(strings.ToLower(p.Search)), out: v1.Part[T]{Items: []T{}}}
}

// offer the next item of the list: the texts that a search finds it by, and how to make it. Neither is called without need.
func (p *portion[T]) offer(text func() string, item func() T) {
	p.out.Total++
	if len(p.terms) > 0 {
		t := strings.ToLower(text())
		if slices.ContainsFunc(p.terms, func(w string) bool { return !strings.Contains(t, w) }) {
			return
		}
	}
	p.out.Matches++
	if p.asked.Limit == 0 || p.out.Matches > p.asked.Offset && len(p.out.Items) < p.asked.Limit {
		p.out.Items = append(p.out.Items, item())
	}
}

// answer of the list. Without a limit it is that of any list.
func (p *portion[T]) answer() *answerOf[v1.Part[T]] {
	if p.asked.Limit == 0 {
		p.out.Matches, p.out.Total = 0, 0
	}
	return &answerOf[v1.Part[T]]{Body: p.out}
}
