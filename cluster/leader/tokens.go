package leader

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"evenkeel/cluster/state"
)

// tokenUsesEvery is how often the leader records when tokens were last used, and how much later than recorded a token's last
// use must be to be recorded: each record is an entry of the log.
const tokenUsesEvery = 10 * time.Minute

// tokenUses are the last uses of API tokens that this server knows of: its own, and on the leader those that the other servers
// reported.
type tokenUses struct {
	mu sync.Mutex
	at map[string]time.Time // by id of the token
}

// note takes in a use; uses earlier than the known one change nothing.
func (u *tokenUses) note(id string, at time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.at == nil {
		u.at = map[string]time.Time{}
	}
	if at.After(u.at[id]) {
		u.at[id] = at
	}
}

// all returns the uses of the tokens that the cluster has, and forgets the others.
func (u *tokenUses) all(s *state.Snapshot) map[string]time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	maps.DeleteFunc(u.at, func(id string, _ time.Time) bool {
		_, known := s.Token(id)
		return !known
	})
	return maps.Clone(u.at)
}

// usesToRecord returns those that are later than the recorded ones by more than shortest, in order of their ids.
func usesToRecord(tokens []state.Token, seen map[string]time.Time, shortest time.Duration) []state.TokenUse {
	var out []state.TokenUse
	for _, t := range tokens {
		if at, used := seen[t.ID]; used && at.Sub(t.LastUsed) > shortest {
			out = append(out, state.TokenUse{ID: t.ID, At: at.UTC()})
		}
	}
	return out
}

// Token returns the API token of that id, as this server's state has it.
func (c *Service) Token(id string) (state.Token, bool) { return c.o.State.Snapshot().Token(id) }

// AwaitToken is Token, but waits until the token is there or ctx ends: the state of a server that follows lags a little
// behind the leader's.
func (c *Service) AwaitToken(ctx context.Context, id string) (state.Token, bool) {
	for {
		s := c.o.State.Snapshot()
		if t, ok := s.Token(id); ok {
			return t, true
		}
		select {
		case <-s.Watch():
		case <-ctx.Done():
			return state.Token{}, false
		}
	}
}

// MakeToken adds a token of the API. dryRun: only say whether it could.
func (c *Service) MakeToken(ctx context.Context, t state.Token, dryRun bool) (state.Token, error) {
	if !state.ValidTokenName(t.Name) {
		return t, &Invalid{Fields: []FieldError{{Field: "name", Text: state.TokenNameRule, Value: t.Name}}}
	}
	if roles := slices.Concat(state.Roles(), state.TenantRoles()); !slices.Contains(roles, t.Role) {
		return t, &Invalid{Fields: []FieldError{{Field: "role", Text: fmt.Sprintf("must be one of %v", roles), Value: string(t.Role)}}}
	}
	if dryRun {
		return t, c.o.State.Snapshot().CheckTokenPut(t)
	}
	if err := c.propose(ctx, state.KindAdminToken, t); err != nil {
		return t, err
	}
	made, _ := c.Token(t.ID)
	return made, nil
}

// RevokeToken revokes an API token, and returns it. dryRun: only say whether it could be.
func (c *Service) RevokeToken(ctx context.Context, d state.TokenDrop, dryRun bool) (state.Token, error) {
	t, err := c.o.State.Snapshot().CheckTokenDrop(d)
	if err != nil || dryRun {
		return t, err
	}
	return t, c.propose(ctx, state.KindTokenDrop, d)
}

// UseToken notes that a token was used at a time.
func (c *Service) UseToken(id string, at time.Time) { c.used.note(id, at) }

// TokenUses returns the last uses of tokens that this server knows of, by id; see UseToken.
func (c *Service) TokenUses() map[string]time.Time { return c.used.all(c.o.State.Snapshot()) }

// keepTokenUses records the last uses now and then, while this server leads.
func (c *Service) keepTokenUses(ctx context.Context) {
	tick := time.NewTicker(tokenUsesEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := c.recordTokenUses(ctx); err != nil && ctx.Err() == nil {
			c.log.Debug("record the last use of tokens", "error", err)
		}
	}
}

func (c *Service) recordTokenUses(ctx context.Context) error {
	uses := usesToRecord(c.o.State.Snapshot().Tokens(), c.TokenUses(), tokenUsesEvery)
	if len(uses) == 0 {
		return nil
	}
	return c.propose(ctx, state.KindTokensUsed, state.TokensUsed{Used: uses[:min(len(uses), state.MaxTokens)]})
}
