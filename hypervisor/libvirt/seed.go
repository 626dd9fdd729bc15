package libvirt

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"evenkeel/hypervisor"
)

// isoTools make ISO 9660 images; they all understand mkisofs's options.
var isoTools = []string{"genisoimage", "mkisofs", "xorrisofs"}

// seedImage is the VM's cloud-init data as cloud-init's NoCloud source wants
// it: an ISO 9660 image labelled "cidata".
func seedImage(ctx context.Context, spec hypervisor.Spec) ([]byte, error) {
	tool := ""
	for _, name := range isoTools {
		if path, err := exec.LookPath(name); err == nil {
			tool = path
			break
		}
	}
	if tool == "" {
		return nil, fmt.Errorf("no program on this host makes ISO images: install genisoimage (or xorriso): %w", hypervisor.ErrInvalid)
	}
	dir, err := os.MkdirTemp("", "evenkeel-seed-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	args := []string{"-quiet", "-volid", "cidata", "-joliet", "-rock"}
	for _, f := range seedFiles(spec) {
		path := filepath.Join(dir, f.name)
		if err := os.WriteFile(path, []byte(f.text), 0o600); err != nil {
			return nil, err
		}
		args = append(args, path)
	}
	var out, complaint bytes.Buffer
	cmd := exec.CommandContext(ctx, tool, args...)
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", filepath.Base(tool), err, bytes.TrimSpace(complaint.Bytes()))
	}
	return out.Bytes(), nil
}

type seedFile struct{ name, text string }

// hostname of a guest: "ek-" and its full name without the tenant, which is no business of the guest's users.
func hostname(spec hypervisor.Spec) string {
	if spec.Title == "" {
		return spec.Name
	}
	return "ek-" + spec.Title[strings.LastIndexByte(spec.Title, '/')+1:]
}

// seedFiles are the files of the seed. NoCloud wants user data and meta data
// even if empty; the instance id is the VM's, so that a guest moved or
// started again does not take itself for a new machine.
func seedFiles(spec hypervisor.Spec) []seedFile {
	meta := spec.CloudInit.MetaData
	if meta == "" {
		meta = fmt.Sprintf("instance-id: %s\nlocal-hostname: %s\n", uuidOf(spec.VM), hostname(spec))
	}
	files := []seedFile{{"user-data", spec.CloudInit.UserData}, {"meta-data", meta}}
	if spec.CloudInit.NetworkConfig != "" {
		files = append(files, seedFile{"network-config", spec.CloudInit.NetworkConfig})
	}
	return files
}
