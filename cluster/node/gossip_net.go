package node

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// vetting checks streams before memberlist, over UDP and TCP, sees them: memberlist answers a stream that it cannot decrypt
// with an error, and strangers must get no answer. So the first message is decrypted here, too. memberlist itself drops packets
// that it cannot decrypt.
type vetting struct {
	*memberlist.NetTransport
	keys    func() [][]byte // that members know now; their lengths were checked
	streams chan net.Conn
	stop    chan struct{}
	group   sync.WaitGroup
	closing sync.Once
}

const (
	gossipEncrypted = 10              // type of an encrypted message, first byte of a stream
	maxGossipStream = 4 << 20         // bytes; thousands of members fit
	vetTime         = 5 * time.Second // for a connection to show that it knows the key
	maxVetted       = 64              // connections at a time that have not shown it yet
	sealOverhead    = 1 + 12 + 16     // version, nonce and tag of an encrypted message
	streamHeader    = 1 + 4           // type and length
)

func newVetting(t *memberlist.NetTransport, keys func() [][]byte) *vetting {
	v := &vetting{NetTransport: t, keys: keys, streams: make(chan net.Conn), stop: make(chan struct{})}
	v.group.Go(v.run)
	return v
}

// opens says whether a message was sealed with one of the keys.
func (v *vetting) opens(head, body []byte) bool {
	for _, key := range v.keys() {
		block, err := aes.NewCipher(key)
		if err != nil {
			continue
		}
		aead, err := cipher.NewGCM(block)
		if err != nil {
			continue
		}
		if _, err := aead.Open(nil, body[1:13], body[13:], head); err == nil {
			return true
		}
	}
	return false
}

// StreamCh implements memberlist.Transport.
func (v *vetting) StreamCh() <-chan net.Conn { return v.streams }

// Shutdown implements memberlist.Transport.
func (v *vetting) Shutdown() error {
	err := v.NetTransport.Shutdown() // it waits until what it accepted is taken
	v.closing.Do(func() { close(v.stop) })
	v.group.Wait()
	return err
}

func (v *vetting) run() {
	slots := make(chan struct{}, maxVetted)
	for {
		select {
		case <-v.stop:
			return
		case c := <-v.NetTransport.StreamCh():
			select {
			case slots <- struct{}{}:
				v.group.Go(func() {
					defer func() { <-slots }()
					v.vet(c)
				})
			default:
				_ = c.Close() // too many strangers: members talk by packets meanwhile
			}
		}
	}
}

// vet hands on a connection whose first message was sealed with the key, and closes any other.
func (v *vetting) vet(c net.Conn) {
	ended := make(chan struct{})
	defer close(ended)
	go func() { // a closed transport waits for no peer
		select {
		case <-v.stop:
			_ = c.SetDeadline(time.Unix(1, 0))
		case <-ended:
		}
	}()
	message, err := v.first(c)
	if err != nil {
		_ = c.Close()
		return
	}
	select {
	case v.streams <- &again{Conn: c, rest: bytes.NewReader(message)}:
	case <-v.stop:
		_ = c.Close()
	}
}

func (v *vetting) first(c net.Conn) ([]byte, error) {
	if err := c.SetDeadline(time.Now().Add(vetTime)); err != nil {
		return nil, err
	}
	head := make([]byte, streamHeader)
	if _, err := io.ReadFull(c, head); err != nil {
		return nil, err
	}
	size := int64(binary.BigEndian.Uint32(head[1:]))
	if head[0] != gossipEncrypted || size < sealOverhead || size > maxGossipStream {
		return nil, errors.New("not a message of a member")
	}
	var body bytes.Buffer // it grows with what comes, not with what was announced
	if _, err := io.CopyN(&body, c, size); err != nil {
		return nil, err
	}
	b := body.Bytes()
	if !v.opens(head, b) {
		return nil, errors.New("not sealed with a key of the members")
	}
	return append(head, b...), c.SetDeadline(time.Time{})
}

// again is a connection whose first bytes are read a second time.
type again struct {
	net.Conn
	rest *bytes.Reader
}

// Read implements net.Conn.
func (a *again) Read(b []byte) (int, error) {
	if a.rest.Len() > 0 {
		return a.rest.Read(b)
	}
	return a.Conn.Read(b)
}
