package trace

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Format is how files hold series.
type Format string

const (
	Bitbrains  Format = "bitbrains"
	Google2011 Format = "google2011"
	PlanetLab  Format = "planetlab"
	NAB        Format = "nab"
)

// formats lists what can be read. known says whether a file that begins with head is in the format.
var formats = []struct {
	name  Format
	known func(head []byte) bool
	read  func(c *collector, name string, r io.Reader) error
}{
	{Bitbrains, knownBitbrains, readBitbrains},
	{NAB, knownNAB, readNAB},
	{Google2011, knownGoogle2011, readGoogle2011},
	{PlanetLab, knownPlanetLab, readPlanetLab},
}

// Formats are all formats, in the order in which they are distinguished.
func Formats() []Format {
	var names []Format
	for _, f := range formats {
		names = append(names, f.name)
	}
	return names
}

// Source is a file or a folder to read.
type Source struct {
	FS   fs.FS
	Name string // within FS
}

// Options of Load. Bounds of 0 are the defaults.
type Options struct {
	Format        Format // of all files; empty: each file is looked at
	MaxFileBytes  int64  // of one file, unpacked (256 MiB)
	MaxTotalBytes int64  // of all files, unpacked (8 GiB)
	MaxLength     int    // values of one series (1 Mi)
	MaxValues     int    // values of all series (64 Mi)
}

// Data is what files hold.
type Data struct {
	Series []Series // ordered by set, VM, resource
	Notes  []string // what was left out or mended, for people
}

// Load reads all sources. A file whose format is not known is an error if it is itself a source, and passed over with a
// note in a folder or an archive. That there is no series at all is an error.
func Load(o Options, sources ...Source) (Data, error) {
	c := &collector{o: o.withDefaults(), days: map[string][]googleDay{}, seen: map[string]bool{}}
	if o.Format != "" && !slices.Contains(Formats(), o.Format) {
		return Data{}, fmt.Errorf("format %q is not one of %v", o.Format, Formats())
	}
	for _, s := range sources {
		if err := c.source(s); err != nil {
			return Data{}, err
		}
	}
	if err := c.concatenateDays(); err != nil {
		return Data{}, err
	}
	if len(c.data.Series) == 0 {
		if len(c.data.Notes) == 0 {
			return Data{}, errors.New("no files to read series from")
		}
		why, more := c.data.Notes, ""
		if len(why) > 5 {
			why, more = why[:4], fmt.Sprintf("; and %d more", len(why)-4)
		}
		return Data{}, fmt.Errorf("no series in what was read: %s%s", strings.Join(why, "; "), more)
	}
	slices.SortFunc(c.data.Series, func(a, b Series) int {
		return strings.Compare(key(a), key(b))
	})
	return c.data, nil
}

func (o Options) withDefaults() Options {
	if o.MaxFileBytes <= 0 {
		o.MaxFileBytes = 256 << 20
	}
	if o.MaxTotalBytes <= 0 {
		o.MaxTotalBytes = 8 << 30
	}
	if o.MaxLength <= 0 {
		o.MaxLength = 1 << 20
	}
	if o.MaxValues <= 0 {
		o.MaxValues = 64 << 20
	}
	return o
}

// key orders series and distinguishes them.
func key(s Series) string { return s.Set + "\x00" + s.VM + "\x00" + string(s.Resource) }

// errUnknown says that a file is in none of the formats.
var errUnknown = errors.New("in none of the known formats")

// collector gathers the series of a Load.
type collector struct {
	o      Options
	bytes  int64 // read so far, unpacked
	values int   // of all series so far
	data   Data
	seen   map[string]bool
	days   map[string][]googleDay // by job
}

func (c *collector) note(format string, args ...any) {
	c.data.Notes = append(c.data.Notes, fmt.Sprintf(format, args...))
}

// add takes a series that is complete.
func (c *collector) add(s Series) error {
	if len(s.Values) > c.o.MaxLength {
		return fmt.Errorf("%s of VM %s has %d values, more than %d", s.Resource, s.VM, len(s.Values), c.o.MaxLength)
	}
	if c.values += len(s.Values); c.values > c.o.MaxValues {
		return fmt.Errorf("more than %d values in all", c.o.MaxValues)
	}
	if k := key(s); c.seen[k] {
		return fmt.Errorf("%s of VM %s is there twice in set %s", s.Resource, s.VM, s.Set)
	} else {
		c.seen[k] = true
	}
	c.data.Series = append(c.data.Series, s)
	return nil
}

func (c *collector) source(s Source) error {
	info, err := fs.Stat(s.FS, s.Name)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return c.file(s, s.Name, info.Name())
	}
	return fs.WalkDir(s.FS, s.Name, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case strings.HasPrefix(d.Name(), ".") && p != s.Name:
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case d.IsDir():
			return nil
		case !d.Type().IsRegular():
			c.note("%s: passed over, not a file", p)
			return nil
		}
		// The folder that holds the file stays part of its name: that is where PlanetLab has the day.
		within := strings.TrimPrefix(p, s.Name+"/")
		if within == path.Base(p) && s.Name != "." {
			within = path.Join(path.Base(s.Name), within)
		}
		if err := c.file(s, p, within); errors.Is(err, errUnknown) {
			c.note("%s: passed over, %v", p, errUnknown)
		} else if err != nil {
			return err
		}
		return nil
	})
}

// file reads a file, which may be packed; name is what it is called to its reader.
func (c *collector) file(s Source, p, name string) error {
	f, err := s.FS.Open(p)
	if err != nil {
		return err
	}
	defer f.Close()
	r := bufio.NewReader(f)
	if head, _ := r.Peek(2); bytes.Equal(head, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(r)
		if err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		// What is passed over in an archive is unpacked too, and not counted below.
		r = bufio.NewReader(&bounded{r: z, left: c.o.MaxTotalBytes - c.bytes})
		name = strings.TrimSuffix(name, ".gz")
	}
	if head, _ := r.Peek(262); len(head) == 262 && string(head[257:]) == "ustar" {
		err = c.archive(r)
	} else {
		err = c.member(name, r)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", p, err)
	}
	return nil
}

func (c *collector) archive(r io.Reader) error {
	t := tar.NewReader(r)
	for {
		h, err := t.Next()
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case h.Typeflag != tar.TypeReg || strings.HasPrefix(path.Base(h.Name), "."):
			continue
		}
		if err := c.member(path.Clean(h.Name), t); err == errUnknown {
			c.note("%s: passed over, %v", h.Name, errUnknown)
		} else if err != nil {
			return fmt.Errorf("%s: %w", h.Name, err)
		}
	}
}

// member reads one file of series.
func (c *collector) member(name string, r io.Reader) error {
	in := &bounded{r: r, left: min(c.o.MaxFileBytes, c.o.MaxTotalBytes-c.bytes)}
	limit := in.left
	defer func() { c.bytes += limit - in.left }()
	b := bufio.NewReader(in)
	head, err := b.Peek(512)
	if err != nil && err != io.EOF {
		return err
	}
	for _, f := range formats {
		if c.o.Format == f.name || c.o.Format == "" && f.known(head) {
			return f.read(c, name, b)
		}
	}
	return errUnknown
}

// leaveOut says why there is no series of a file.
func (c *collector) leaveOut(name, why string, args ...any) error {
	c.note("%s: left out, %s", name, fmt.Sprintf(why, args...))
	return nil
}

// bounded fails once more than left bytes were read.
type bounded struct {
	r    io.Reader
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		var one [1]byte
		if n, err := b.r.Read(one[:]); n == 0 {
			return 0, err
		}
		return 0, errors.New("larger than the bound on bytes")
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// lines calls each for every line that is not blank, without the spaces around it.
func lines(r io.Reader, each func(text string) error) error {
	s := bufio.NewScanner(r)
	for n := 1; s.Scan(); n++ {
		if text := strings.TrimSpace(s.Text()); text != "" {
			if err := each(text); err != nil {
				return fmt.Errorf("line %d: %w", n, err)
			}
		}
	}
	return s.Err()
}

// firstLine is the first line with something in it of a file that begins with head.
func firstLine(head []byte) string {
	line, _, _ := strings.Cut(strings.TrimLeft(string(head), " \t\r\n"), "\n")
	return strings.TrimSpace(line)
}

// everyLine says whether all lines of head that have something in them are like that; the last may be cut off, and counts
// only if it is the only one.
func everyLine(head []byte, like func(line string) bool) bool {
	all := strings.Split(string(head), "\n")
	if len(all) > 1 {
		all = all[:len(all)-1]
	}
	some := false
	for _, line := range all {
		if line = strings.TrimSpace(line); line != "" {
			if some = like(line); !some {
				return false
			}
		}
	}
	return some
}

// number reads a measured value: one that is empty, NaN, infinite or below 0 was not measured.
func number(text string) (float64, error) {
	if text = strings.TrimSpace(text); text == "" {
		return math.NaN(), nil
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0, fmt.Errorf("%q is not a number", text)
	}
	if v < 0 || math.IsInf(v, 0) {
		v = math.NaN()
	}
	return v, nil
}
