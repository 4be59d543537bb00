package storetest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/fencing/fencetest"
	"github.com/etcdclaims/claims/fencing/objectguard"
)

// TestGuards runs fencetest on a Gate and on Objects in the stores that open
// returns. The tests also pass if some of a store's replies are lost.
func TestGuards(t *testing.T, open func(t *testing.T) objectguard.Store) {
	t.Run("Gate", func(t *testing.T) {
		fencetest.TestGate(t, func(t *testing.T) fencetest.Subject {
			store := open(t)
			gate := func(t *testing.T) fencing.Gate {
				g, err := objectguard.NewGate(store, "a/fences/")
				if err != nil {
					t.Fatal(err)
				}
				return g
			}
			return fencetest.Subject{Gate: gate(t), Restart: gate}
		})
	})
	t.Run("Object", func(t *testing.T) {
		fencetest.TestGate(t, func(t *testing.T) fencetest.Subject {
			store := open(t)
			p := &process{store: store}
			return fencetest.Subject{
				Gate:    p,
				Restart: func(*testing.T) fencing.Gate { return &process{store: store} },
				Write:   p.write,
				Effects: p.effects,
				Crash: func(ctx context.Context, t fencing.Token, effect string) error {
					err := (&process{store: dying{store}}).write(ctx, t, effect)
					if errors.Is(err, errDead) {
						return nil
					}
					return err
				},
			}
		})
	})
}

// process is a process with one Object for each key, as programs should have. The
// effects are the lines of the object.
type process struct {
	store objectguard.Store

	mu      sync.Mutex
	objects map[string]*objectguard.Object
}

func (p *process) object(key string) (*objectguard.Object, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if o := p.objects[key]; o != nil {
		return o, nil
	}
	digest := sha256.Sum256([]byte(key))
	o, err := objectguard.New(p.store, "a/state/"+hex.EncodeToString(digest[:]))
	if p.objects == nil {
		p.objects = make(map[string]*objectguard.Object)
	}
	p.objects[key] = o
	return o, err
}

// Admit admits the token at the object of its key.
func (p *process) Admit(ctx context.Context, t fencing.Token) error {
	o, err := p.object(t.Key)
	if err != nil {
		return err
	}
	return o.Admit(ctx, t)
}

func (p *process) write(ctx context.Context, t fencing.Token, effect string) error {
	o, err := p.object(t.Key)
	if err != nil {
		return err
	}
	return o.Update(ctx, t, func(old []byte) ([]byte, error) { return fmt.Append(old, effect, "\n"), nil })
}

func (p *process) effects(ctx context.Context, key string) ([]string, error) {
	o, err := p.object(key)
	if err != nil {
		return nil, err
	}
	data, _, err := o.Read(ctx)
	if errors.Is(err, objectguard.ErrNotFound) {
		return nil, nil
	}
	return strings.Split(strings.TrimSuffix(string(data), "\n"), "\n"), err
}

// dying is the store of a process that dies after it has read and before it
// writes.
type dying struct{ objectguard.Store }

var errDead = fmt.Errorf("%w: the process is dead", objectguard.ErrRefused)

func (dying) Create(context.Context, string, []byte) (string, error) { return "", errDead }

func (dying) Replace(context.Context, string, []byte, string) (string, error) { return "", errDead }
