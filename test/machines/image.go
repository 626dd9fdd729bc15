package machines

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Image is what image.sh made, and the QEMU that boots it.
type Image struct {
	Release string   // of Debian
	Dir     string   // of image.sh
	QEMU    []string // the program, and where it finds its firmware
	Version string   // of QEMU
	inputs  string
}

// Reference is the release of Debian that machines have unless EVENKEEL_MACHINE names another.
const Reference = "bookworm"

// FindImage finds the image of a release and QEMU below build of the repository at root. EVENKEEL_QEMU names another tree with a
// QEMU.
func FindImage(ctx context.Context, root, release string) (Image, error) {
	img := Image{Release: release, Dir: filepath.Join(root, "build", "machines", "image-"+release)}
	inputs, err := os.ReadFile(filepath.Join(img.Dir, "inputs"))
	if err != nil {
		return img, fmt.Errorf("machine image: %w: run test/machines/image.sh %s", err, release)
	}
	img.inputs = strings.TrimSpace(string(inputs))
	tree := os.Getenv("EVENKEEL_QEMU")
	if tree == "" {
		tree = filepath.Join(root, "build", "qemu")
	}
	share := filepath.Join(tree, "usr", "share")
	img.QEMU = []string{filepath.Join(tree, "usr", "bin", "qemu-system-x86_64"), "-L", filepath.Join(share, "seabios"), "-L", filepath.Join(share, "qemu")}
	out, err := exec.CommandContext(ctx, img.QEMU[0], "--version").Output()
	if err != nil {
		return img, fmt.Errorf("QEMU of Debian's backports: %w: run scripts/fetch-qemu.sh", err)
	}
	img.Version, _, _ = strings.Cut(string(out), "\n")
	return img, nil
}

// Packages are the installed packages of the image with their versions.
func (img Image) Packages() (map[string]string, error) {
	text, err := os.ReadFile(filepath.Join(img.Dir, "packages"))
	if err != nil {
		return nil, err
	}
	return parsePackages(string(text)), nil
}

// parsePackages reads the output of dpkg-query -W; "name:amd64" is entered as "name".
func parsePackages(text string) map[string]string {
	versions := map[string]string{}
	for line := range strings.Lines(text) {
		name, version, ok := strings.Cut(strings.TrimSpace(line), "\t")
		if ok {
			name, _, _ = strings.Cut(name, ":")
			versions[name] = version
		}
	}
	return versions
}

// fingerprint is of all that a saved machine depends on: another QEMU, disk or device cannot restore it.
func (img Image) fingerprint() string {
	sum := sha256.New()
	fmt.Fprintln(sum, img.inputs, img.Version, strings.Join(devices, " "), lanMAC, cmdline)
	return fmt.Sprintf("%x", sum.Sum(nil)[:8])
}

// overlay makes a disk at path that begins as base and keeps what is written to it.
func overlay(ctx context.Context, base, path string) error {
	out, err := exec.CommandContext(ctx, "qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", base, path).CombinedOutput()
	if err != nil {
		return fmt.Errorf("make a disk on top of %s: %w: %s", base, err, out)
	}
	return nil
}
