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

// plain is a libvirt error that reads as libvirt's own message.
type plain struct{ e libvirt.Error }

func (p plain) Error() string { return p.e.Message }
func (p plain) Unwrap() error { return p.e }

// bareError is err with libvirt's own message and no more.
func bareError(err error) error {
	if bare, ok := err.(libvirt.Error); ok {
		return plain{bare}
	}
	return err
}

// translate wraps libvirt's error in the sentinel that fits.
func translate(s *session, err error) error {
	var e libvirt.Error
	if err == nil || !errors.As(err, &e) {
		return err
	}
	err = bareError(err)
	if fit := sentinel(s, e); fit != nil && !errors.Is(err, fit) {
		return fmt.Errorf("%w: %w", err, fit)
	}
	return err
}

func sentinel(s *session, e libvirt.Error) error {
	switch e.Code {
	case libvirt.ERR_NO_DOMAIN:
		return hypervisor.ErrNotFound
	case libvirt.ERR_DOM_EXIST:
		return hypervisor.ErrExists
	case libvirt.ERR_NO_STORAGE_POOL, libvirt.ERR_NO_NETWORK, libvirt.ERR_INVALID_ARG,
		libvirt.ERR_CONFIG_UNSUPPORTED, libvirt.ERR_NO_SUPPORT, libvirt.ERR_XML_ERROR:
		return hypervisor.ErrInvalid
	case libvirt.ERR_NO_CONNECT, libvirt.ERR_OPERATION_TIMEOUT:
		return hypervisor.ErrUnavailable
	}
	// A call on a connection that broke says "internal error", or whatever the
	// socket said: only the connection's own state shows the break.
	if e.Domain == libvirt.FROM_RPC || s != nil && !s.alive() {
		return hypervisor.ErrUnavailable
	}
	return nil
}
