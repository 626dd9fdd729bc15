package v1

import (
	"fmt"
	"reflect"
	"strings"
)

// SettingRow is a setting as a table shows it.
type SettingRow struct {
	Name   string
	Value  string   // as people write it; "" of an empty text or list
	Range  string   // what a value may be
	OneOf  []string // the values that there are; nil: Range says it
	Doc    string
	IsList bool
}

// Rows are all settings that can be changed, in the order of the document.
func (c ClusterSettings) Rows() []SettingRow {
	return settingRows("", reflect.ValueOf(c), reflect.TypeFor[SettingsPatch]())
}

func settingRows(prefix string, shown reflect.Value, patch reflect.Type) (out []SettingRow) {
	changes := map[string]reflect.StructField{}
	for f := range patch.Fields() {
		changes[f.Name] = f
	}
	for f, v := range shown.Fields() {
		change, may := changes[f.Name]
		if !may {
			continue // read only
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if v.Kind() == reflect.Struct {
			out = append(out, settingRows(prefix+name+".", v, change.Type.Elem())...)
			continue
		}
		row := SettingRow{Name: prefix + name, Value: fmt.Sprint(v.Interface()), Doc: strings.ReplaceAll(f.Tag.Get("doc"), ", as a Go duration", ""), IsList: v.Kind() == reflect.Slice}
		switch x := v.Interface().(type) {
		case Size:
			row.Value = x.Short()
		case []string:
			row.Value = strings.Join(x, ",")
		}
		row.Range, row.OneOf = rangeOf(f, change, v)
		out = append(out, row)
	}
	return out
}

// rangeOf the values of a setting, in words, and one by one where there are few.
func rangeOf(f, change reflect.StructField, v reflect.Value) (text string, oneOf []string) {
	lo, hi := change.Tag.Get("minimum"), change.Tag.Get("maximum")
	_, isSize := v.Interface().(Size)
	switch {
	case hi != "":
		return lo + " to " + hi, nil
	case lo != "":
		return lo + " or more", nil
	case change.Tag.Get("enum") != "":
		return "", strings.Split(change.Tag.Get("enum"), ",")
	case strings.Contains(f.Tag.Get("doc"), "Go duration"):
		return "a time such as `10m`", nil
	case isSize:
		return "bytes, or a size such as `2GiB`", nil
	case v.Kind() == reflect.Bool:
		return "", []string{"true", "false"}
	case v.Kind() == reflect.Slice:
		return "names, with commas between", nil
	case v.Kind() == reflect.String:
		return "text", nil
	}
	return "number", nil
}
