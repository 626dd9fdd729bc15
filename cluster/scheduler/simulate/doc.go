// Package simulate answers what a cluster would be with other hosts or needs: which moves would lead there, which VMs would have no
// host, and which virtual clusters would not be admitted. It uses the other schedulers' decisions and changes nothing. It takes
// values and returns values.
package simulate
