// Package browser walks through the dashboard in a real Chromium, against servers that keep a real log and answer on real TLS, with
// simulated hosts.
package browser
