package libvirt

import (
	"errors"
	"fmt"

	"libvirt.org/go/libvirt"

	"evenkeel/hypervisor"
)

// isCode says whether err is libvirt's error of that code.
func isCode(err error, code libvirt.ErrorNumber) bool {
	var e libvirt.Error
	return errors.As(err, &e) && e.Code == code
}

// translate wraps libvirt's error in the sentinel that fits.
func translate(s *session, err error) error {
	var e libvirt.Error
	if err == nil || !errors.As(err, &e) {
		return err
	}
	switch e.Code {
	case libvirt.ERR_NO_DOMAIN:
		return fmt.Errorf("%w: %w", err, hypervisor.ErrNotFound)
	case libvirt.ERR_DOM_EXIST:
		return fmt.Errorf("%w: %w", err, hypervisor.ErrExists)
	case libvirt.ERR_NO_STORAGE_POOL, libvirt.ERR_NO_NETWORK, libvirt.ERR_INVALID_ARG,
		libvirt.ERR_CONFIG_UNSUPPORTED, libvirt.ERR_NO_SUPPORT, libvirt.ERR_XML_ERROR:
		return fmt.Errorf("%w: %w", err, hypervisor.ErrInvalid)
	case libvirt.ERR_NO_CONNECT, libvirt.ERR_OPERATION_TIMEOUT:
		return fmt.Errorf("%w: %w", err, hypervisor.ErrUnavailable)
	}
	// A call on a connection that broke says "internal error", or whatever the
	// socket said: the connection's own state is what tells.
	if e.Domain == libvirt.FROM_RPC || s != nil && !s.alive() {
		return fmt.Errorf("%w: %w", err, hypervisor.ErrUnavailable)
	}
	return err
}
