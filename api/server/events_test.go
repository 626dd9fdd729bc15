package server_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"evenkeel/api/client"
	"evenkeel/api/v1"
)

// Filters of events hold for lists, before the limit, and for streams.
func TestEventsFiltered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := start(t)
		api := c.client(t)
		_, err := api.Cordon(t.Context(), "h2", "for a look")
		must(t, err)
		c.create(t, small("a", 1)) // what comes after drowns it
		list := func(q client.EventQuery) []v1.Event {
			answer, err := api.ListEvents(t.Context(), q)
			must(t, err)
			return answer.Items
		}
		for name, q := range map[string]client.EventQuery{
			"kind":         {Kinds: []string{"host-cordoned"}, Limit: 1},
			"kinds":        {Kinds: []string{"host-cordoned", "image-*"}, Limit: 1, Name: "h2"},
			"kind, since":  {Kinds: []string{"host-cord*"}, Limit: 1, Since: "1h"},
			"kind, after":  {Kinds: []string{"host-cordoned"}, After: ptr(uint64(0)), Limit: 1},
			"name, newest": {Name: "h2", Limit: 1},
		} {
			if got := list(q); len(got) != 1 || got[0].Kind != "host-cordoned" || got[0].Name != "h2" {
				t.Errorf("%s: %+v", name, got)
			}
		}
		if got := list(client.EventQuery{Since: "2100-01-01T00:00:00Z"}); len(got) != 0 {
			t.Errorf("of the future: %+v", got)
		}
		if _, err := api.ListEvents(t.Context(), client.EventQuery{Since: "yesterday"}); err == nil || !strings.Contains(err.Error(), "since") {
			t.Errorf("since yesterday: %v", err)
		}

		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		seen := make(chan v1.Event, 100)
		ended := make(chan error, 1)
		go func() {
			ended <- api.Follow(ctx, client.EventQuery{After: ptr(uint64(0)), Kinds: []string{"host-uncordoned", "host-cordoned"}}, func(m client.Message) error {
				seen <- m.Event
				return nil
			})
		}()
		if e := <-seen; e.Kind != "host-cordoned" {
			t.Errorf("%+v", e)
		}
		_, err = api.Uncordon(t.Context(), "h2")
		must(t, err)
		if e := <-seen; e.Kind != "host-uncordoned" {
			t.Errorf("%+v", e)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("follow: %v", err)
		}
	})
}
