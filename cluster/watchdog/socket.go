package watchdog

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// answerTime is how long an outside watchdog may take to answer, or to take a byte.
const answerTime = 2 * time.Second

// maxAnswer is the most bytes of an answer, with its end of line.
const maxAnswer = 256

// connection is a line to an outside watchdog.
type connection struct{ *net.UnixConn }

// Write gives up rather than hang on a watchdog that takes nothing.
func (c connection) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(answerTime)); err != nil {
		return 0, err
	}
	return c.UnixConn.Write(b)
}

// openSocket arms the watchdog that listens at path.
func openSocket(path string, timeout time.Duration) (line, time.Duration, string, error) {
	conn, err := (&net.Dialer{Timeout: answerTime}).Dial("unix", path)
	if err != nil {
		return nil, 0, "", err
	}
	c := connection{conn.(*net.UnixConn)}
	took, name, err := c.arm(timeout)
	if err != nil {
		return nil, 0, "", errors.Join(err, c.Close())
	}
	return c, took, name, nil
}

func (c connection) arm(timeout time.Duration) (took time.Duration, name string, err error) {
	if _, err := fmt.Fprintf(c, "timeout %d\n", timeout/time.Second); err != nil {
		return 0, "", err
	}
	if err := c.SetReadDeadline(time.Now().Add(answerTime)); err != nil {
		return 0, "", err
	}
	text, err := bufio.NewReader(io.LimitReader(c, maxAnswer)).ReadString('\n')
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return 0, "", fmt.Errorf("wait for its answer to the time-out: %w", err)
	}
	return parseAnswer(text)
}

// parseAnswer reads "armed SECONDS NAME\n" or "refused REASON\n".
func parseAnswer(text string) (took time.Duration, name string, err error) {
	verb, rest, _ := strings.Cut(strings.TrimSuffix(text, "\n"), " ")
	switch verb {
	case "armed":
		number, name, _ := strings.Cut(rest, " ")
		seconds, err := strconv.ParseUint(number, 10, 31)
		if err != nil {
			return 0, "", fmt.Errorf("it answered %q, which names no number of seconds", text)
		}
		return time.Duration(seconds) * time.Second, name, nil
	case "refused":
		return 0, "", fmt.Errorf("it refused: %q", rest)
	}
	return 0, "", fmt.Errorf("it answered %q, and neither armed nor refused", text)
}
