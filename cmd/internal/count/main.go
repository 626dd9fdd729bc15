// Command count prints how many lines of Go code there are in files whose
// paths it reads, one a line, by package, and how many functions and structs
// of the repository are too large. It changes nothing and judges nothing.
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"slices"

	"evenkeel/internal/lint"
)

const (
	maxLines = 53_000
	apart    = "hypervisor/simulated" // linked for vcd dev alone
)

func main() {
	repo, err := lint.Load(os.DirFS("."))
	if err == nil {
		err = count(os.Stdout, os.Stdin, repo)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "count:", err)
		os.Exit(1)
	}
}

func count(w io.Writer, paths io.Reader, repo *lint.Repo) error {
	code := map[string]*lint.GoFile{}
	for _, f := range repo.Go {
		code[f.Path] = f
	}
	lines := map[string]int{} // by folder
	total := 0
	in := bufio.NewScanner(paths)
	for in.Scan() {
		f := code[in.Text()]
		if f == nil {
			return fmt.Errorf("there is no Go file %q in the repository", in.Text())
		}
		lines[f.Dir] += f.Code
		if f.Dir != apart {
			total += f.Code
		}
	}
	if err := in.Err(); err != nil {
		return fmt.Errorf("read the list of files: %w", err)
	}
	folders := make([]string, 0, len(lines))
	for dir := range lines {
		folders = append(folders, dir)
	}
	slices.Sort(folders)
	row := "%-46s %6d\n"
	for _, dir := range folders {
		fmt.Fprintf(w, row, dir, lines[dir])
	}
	limited := "%-46s %6d  limit %d\n"
	fmt.Fprintf(w, limited, "lines in all, "+apart+" apart", total, maxLines)
	for _, rule := range lint.Rules() {
		switch rule.Name {
		case "parameters":
			fmt.Fprintf(w, limited, "functions with over 6 parameters", len(rule.Check(repo)), 0)
		case "fields":
			fmt.Fprintf(w, limited, "structs with over 20 fields and no reason", len(rule.Check(repo)), 0)
		}
	}
	return nil
}
