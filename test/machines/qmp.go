package machines

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Event is one of QEMU's, such as WATCHDOG or RESET.
type Event struct {
	Name string
	At   time.Time       // when it was read
	Data json.RawMessage // may be empty
}

// monitor is a connection to QEMU's machine protocol (QMP).
type monitor struct {
	conn    net.Conn
	answers chan answer
	calls   sync.Mutex // one command at a time

	mu     sync.Mutex
	events []Event
	err    error
}

type answer struct {
	Return json.RawMessage `json:"return"`
	Error  *struct {
		Desc string `json:"desc"`
	} `json:"error"`
}

func dialMonitor(ctx context.Context, socket string) (*monitor, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	m := &monitor{conn: conn, answers: make(chan answer)}
	go m.read()
	if err := m.call(ctx, "qmp_capabilities", nil, nil); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return m, nil
}

// read parts answers from events until the connection ends.
func (m *monitor) read() {
	defer close(m.answers)
	for lines := json.NewDecoder(m.conn); ; {
		var line struct {
			answer
			Event string          `json:"event"`
			Data  json.RawMessage `json:"data"`
			QMP   json.RawMessage `json:"QMP"` // the greeting
		}
		err := lines.Decode(&line)
		switch {
		case err != nil:
			m.mu.Lock()
			m.err = err
			m.mu.Unlock()
			return
		case line.QMP != nil:
		case line.Event != "":
			m.mu.Lock()
			m.events = append(m.events, Event{line.Event, time.Now(), line.Data})
			m.mu.Unlock()
		default:
			m.answers <- line.answer
		}
	}
}

// call runs a command and puts its answer into result, unless that is nil.
func (m *monitor) call(ctx context.Context, command string, arguments, result any) error {
	m.calls.Lock()
	defer m.calls.Unlock()
	request := map[string]any{"execute": command}
	if arguments != nil {
		request["arguments"] = arguments
	}
	text, err := json.Marshal(request)
	if err != nil {
		return err
	}
	if _, err := m.conn.Write(append(text, '\n')); err != nil {
		return fmt.Errorf("QEMU's monitor: %s: %w", command, err)
	}
	select {
	case a, ok := <-m.answers:
		switch {
		case !ok:
			return fmt.Errorf("QEMU's monitor: %s: %w", command, io.ErrUnexpectedEOF)
		case a.Error != nil:
			return fmt.Errorf("QEMU's monitor: %s: %s", command, a.Error.Desc)
		case result != nil:
			return json.Unmarshal(a.Return, result)
		}
		return nil
	case <-ctx.Done(): // the connection is of no use any more: its answer may still come
		return fmt.Errorf("QEMU's monitor: %s: %w", command, errors.Join(context.Cause(ctx), m.conn.Close()))
	}
}

// seen are the events of that name so far, or all of them if it is "".
func (m *monitor) seen(name string) (found []Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.events {
		if name == "" || e.Name == name {
			found = append(found, e)
		}
	}
	return found
}
