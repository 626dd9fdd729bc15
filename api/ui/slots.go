package ui

import (
	"context"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

// Bounds on pages that are being made: each holds what the API answers, some 40 MB for 10,000 VMs, and the form of its request.
const (
	maxPages    = 8                // at once
	maxPagesOf  = 2                // of one token or person
	pageWait    = 20 * time.Second // for one's turn
	formTimeout = 15 * time.Second // for a form to come
)

var errCrowded = refuse(http.StatusTooManyRequests, "The server makes too many pages now", "try again in a moment")

// slots are the turns of pages.
type slots struct {
	all *semaphore.Weighted

	mu sync.Mutex
	of map[string]*slot
}

type slot struct {
	pages *semaphore.Weighted
	users int
}

func newSlots() *slots { return &slots{all: semaphore.NewWeighted(maxPages), of: map[string]*slot{}} }

// take waits for a turn of the caller. The error is errCrowded.
func (s *slots) take(ctx context.Context, caller string) (release func(), err error) {
	s.mu.Lock()
	own := s.of[caller]
	if own == nil {
		own = &slot{pages: semaphore.NewWeighted(maxPagesOf)}
		s.of[caller] = own
	}
	own.users++
	s.mu.Unlock()
	leave := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if own.users--; own.users == 0 {
			delete(s.of, caller)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, pageWait)
	defer cancel()
	if own.pages.Acquire(ctx, 1) != nil {
		leave()
		return nil, errCrowded
	}
	if s.all.Acquire(ctx, 1) != nil {
		own.pages.Release(1)
		leave()
		return nil, errCrowded
	}
	return func() {
		s.all.Release(1)
		own.pages.Release(1)
		leave()
	}, nil
}
