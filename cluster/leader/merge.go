package leader

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"evenkeel/cluster/state"
)

// Conflicts says that a file changes fields which others have changed, too, since the last file was applied.
type Conflicts struct{ Fields []Conflict }

// Conflict is a field that the file and others changed.
type Conflict struct {
	Field          string
	Was, Now, Mine string // in the last file, in force and in this file; "" = left out
	Text           string // what is said of a group as a whole; "" of a field
}

// Says what the conflict is.
func (c Conflict) Says() string {
	if c.Text != "" {
		return c.Text
	}
	return fmt.Sprintf("was %s in the last file, is %s now, and %s in this one", orDefault(c.Was), orDefault(c.Now), orDefault(c.Mine))
}

// Error implements error.
func (e *Conflicts) Error() string {
	parts := make([]string, len(e.Fields))
	for i, f := range e.Fields {
		parts[i] = f.Field + " " + f.Says()
	}
	return "the file and others changed the same fields since the last file was applied: " + strings.Join(parts, "; ") +
		"; get the spec as it is now (vcctl vc get NAME -o yaml) and make the change in it, or overwrite with --force"
}

// Is makes it an ErrConflict.
func (e *Conflicts) Is(target error) bool { return target == ErrConflict }

// merge makes one spec of three: base is the last file that was applied, now what is in force, and mine the file. A field that mine
// leaves as it is in base stays as it is now; kept lists those that others changed. A field that both changed is a conflict; each label
// is a field. Without a base, and with force, mine is what comes out.
func merge(base *state.VCSpec, now, mine state.VCSpec, force bool) (out state.VCSpec, kept []FieldChange, err error) {
	if base == nil || force {
		return mine, nil, nil
	}
	m := merger{}
	out = mine.Clone()
	for _, f := range vcFields {
		mergeField(&m, f, "", sides[state.VCSpec]{base, &now, &mine}, &out)
	}
	for i := range out.Groups {
		g := &out.Groups[i]
		theirs, was := groupOf(&now, g.Name), groupOf(base, g.Name)
		if was == nil {
			was = &state.Group{Name: g.Name}
			if theirs == nil {
				continue // it is new
			}
		}
		if theirs == nil {
			m.removed(g.Name, was, groupOf(&mine, g.Name))
			continue
		}
		of := sides[state.Group]{was, theirs, groupOf(&mine, g.Name)}
		for _, f := range groupFields {
			if f.name == labelsField {
				mergeLabels(&m, "groups["+g.Name+"].", of, g)
				continue
			}
			mergeField(&m, f, "groups["+g.Name+"].", of, g)
		}
	}
	out.Groups = slices.DeleteFunc(out.Groups, func(g state.Group) bool { return slices.Contains(m.gone, g.Name) })
	for i := range now.Groups {
		g := &now.Groups[i]
		if groupOf(&mine, g.Name) != nil {
			continue
		}
		switch was := groupOf(base, g.Name); {
		case was == nil:
			out.Groups = append(out.Groups, *g)
			m.kept = append(m.kept, FieldChange{Field: "groups[" + g.Name + "]", From: "", To: groupText(g), Effect: EffectKept})
		case !sameGroup(was, g):
			m.conflict("groups["+g.Name+"]", "is removed by the file and was changed by another")
		}
	}
	if len(m.conflicts) > 0 {
		return out, nil, &Conflicts{m.conflicts}
	}
	var f faults
	for i := range out.Groups {
		if n := len(out.Groups[i].Labels); n > MaxLabels {
			f.add(fmt.Sprintf("groups[%s].labels", out.Groups[i].Name), nil, "are %d with those that others added since the last file was applied, and at most %d are allowed: remove some, or overwrite with --force", n, MaxLabels)
		}
	}
	if err := f.err(); err != nil {
		return out, nil, err
	}
	return out, m.kept, nil
}

type merger struct {
	kept      []FieldChange
	conflicts []Conflict
	gone      []string // groups that others removed
}

func (m *merger) conflict(field, text string) {
	m.conflicts = append(m.conflicts, Conflict{Field: field, Text: text})
}

// removed handles a group of the file that another removed.
func (m *merger) removed(name string, was, mine *state.Group) {
	if !sameGroup(was, mine) {
		m.conflict("groups["+name+"]", "is changed by the file and was removed by another")
		return
	}
	m.gone = append(m.gone, name)
	m.kept = append(m.kept, FieldChange{Field: "groups[" + name + "]", From: groupText(mine), Effect: EffectKept})
}

// sides of a merge: see merge.
type sides[T any] struct{ base, now, mine *T }

func mergeField[T any](m *merger, f specField[T], at string, of sides[T], out *T) {
	was, theirs, own := f.text(of.base), f.text(of.now), f.text(of.mine)
	switch {
	case own == theirs || was == theirs:
	case own == was:
		f.set(out, of.now)
		m.kept = append(m.kept, shown(FieldChange{Field: at + f.name, From: own, To: theirs, Effect: EffectKept}))
	default:
		c := shown(FieldChange{Field: at + f.name, From: theirs, To: own})
		was := shown(FieldChange{Field: at + f.name, From: was}).From
		m.conflicts = append(m.conflicts, Conflict{Field: at + f.name, Was: was, Now: c.From, Mine: c.To})
	}
}

// mergeLabels merges the labels of a group, each as a field of its own: one owner may add a label while another removes one.
func mergeLabels(m *merger, at string, of sides[state.Group], out *state.Group) {
	keys := map[string]bool{}
	for _, side := range []*state.Group{of.base, of.now, of.mine} {
		for key := range side.Labels {
			keys[key] = true
		}
	}
	out.Labels = maps.Clone(out.Labels) // the file keeps its own
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		mergeField(m, labelField(key), at, of, out)
	}
	if len(out.Labels) == 0 {
		out.Labels = nil
	}
}

// labelField is one label of a group. The text of an empty value is "", in quotes: it is not left out.
func labelField(key string) specField[state.Group] {
	return specField[state.Group]{labelsField + "[" + key + "]", func(g *state.Group) string {
		switch value, is := g.Labels[key]; {
		case is && value == "":
			return `""`
		default:
			return value
		}
	}, func(to, from *state.Group) {
		value, is := from.Labels[key]
		if !is {
			delete(to.Labels, key)
			return
		}
		if to.Labels == nil {
			to.Labels = map[string]string{}
		}
		to.Labels[key] = value
	}}
}

func orDefault(text string) string {
	if text == "" {
		return "left out"
	}
	return text
}

func sameGroup(a, b *state.Group) bool {
	return !slices.ContainsFunc(groupFields, func(f specField[state.Group]) bool { return f.text(a) != f.text(b) })
}
