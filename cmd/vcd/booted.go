package main

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// bootedAt is when this machine was started; zero where that is not known, or hosts are simulated or share a kernel.
func (c *config) bootedAt() time.Time {
	if c.Hypervisor == "simulated" || c.BootID != "" {
		return time.Time{}
	}
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return time.Time{}
	}
	return bootTime(string(stat))
}

// bootTime out of the content of /proc/stat: its line "btime SECONDS", since 1970.
func bootTime(stat string) time.Time {
	for line := range strings.Lines(stat) {
		if seconds, is := strings.CutPrefix(line, "btime "); is {
			if n, err := strconv.ParseInt(strings.TrimSpace(seconds), 10, 64); err == nil && n > 0 {
				return time.Unix(n, 0).UTC()
			}
		}
	}
	return time.Time{}
}
