package xxljob

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// Bounds of the registry.
const (
	// expiry is how long an executor stays registered after its last message. Executors
	// send one every 20 or 30 seconds.
	expiry       = 90 * time.Second
	maxGroups    = 200
	maxExecutors = 1000 // of a group
	maxAddress   = 512
)

// registry holds the executors of each group.
type registry struct {
	check func(netip.Addr) error
	began time.Time
	woken chan struct{} // capacity 1: there is a new group

	mu     sync.Mutex
	groups map[string]map[string]time.Time // by APPNAME and address: the last message
}

func newRegistry(check func(netip.Addr) error) *registry {
	return &registry{check: check, began: time.Now(), woken: make(chan struct{}, 1), groups: map[string]map[string]time.Time{}}
}

// address checks and cleans the address of an executor.
func (r *registry) address(text string) (string, error) {
	u, err := url.Parse(strings.TrimSpace(text))
	switch {
	case err != nil:
		return "", fmt.Errorf("the address of the executor: %w", err)
	case len(text) > maxAddress:
		return "", fmt.Errorf("the address of the executor has %d bytes: the limit is %d", len(text), maxAddress)
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return "", fmt.Errorf("the address %q of the executor: want http://HOST:PORT or https://HOST:PORT", text)
	}
	if ip, err := netip.ParseAddr(u.Hostname()); err == nil {
		if err := r.check(ip); err != nil {
			return "", fmt.Errorf("the address of the executor: %w", err)
		}
	}
	return strings.TrimSuffix(u.String(), "/"), nil
}

// add notes that an executor is there.
func (r *registry) add(g registration) error {
	address, err := r.address(g.Address)
	if err != nil {
		return err
	}
	if g.Kind != "EXECUTOR" {
		return fmt.Errorf("registryGroup %q: want EXECUTOR", g.Kind)
	}
	if err := checkGroup(g.Group); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expireLocked()
	group := r.groups[g.Group]
	if group == nil {
		if len(r.groups) >= maxGroups {
			return fmt.Errorf("there are %d groups of executors: the limit is reached", maxGroups)
		}
		group = map[string]time.Time{}
		r.groups[g.Group] = group
		select {
		case r.woken <- struct{}{}:
		default:
		}
	}
	if _, known := group[address]; !known && len(group) >= maxExecutors {
		return fmt.Errorf("the group %s has %d executors: the limit is reached", g.Group, maxExecutors)
	}
	group[address] = time.Now()
	return nil
}

// remove notes that an executor leaves.
func (r *registry) remove(g registration) error {
	address, err := r.address(g.Address)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.groups[g.Group], address)
	r.expireLocked()
	return nil
}

func (r *registry) expireLocked() {
	for name, group := range r.groups {
		for address, seen := range group {
			if time.Since(seen) > expiry {
				delete(group, address)
			}
		}
		if len(group) == 0 {
			delete(r.groups, name)
		}
	}
}

// executors returns the addresses of a group in their order.
func (r *registry) executors(group string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expireLocked()
	var list []string
	for address := range r.groups[group] {
		list = append(list, address)
	}
	slices.Sort(list)
	return list
}

// names returns the groups with an executor.
func (r *registry) names() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expireLocked()
	var list []string
	for name := range r.groups {
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}

// lost reports whether an executor has sent no message for so long that it has gone. After the
// start of the bridge every executor has the time to register.
func (r *registry) lost(group, address string) bool {
	if time.Since(r.began) <= expiry {
		return false
	}
	return !slices.Contains(r.executors(group), address)
}

// maxGroup is the most bytes of an APPNAME: with functionPrefix it is the name of a handler.
const maxGroup = 100

func checkGroup(name string) error {
	if name == "" || len(name) > maxGroup {
		return errors.New("registryKey: want the APPNAME of the executor, 1 to 100 bytes")
	}
	for _, c := range name {
		if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.", c) {
			return fmt.Errorf("registryKey %q: an APPNAME has letters, digits, '-', '_' and '.'", name)
		}
	}
	return nil
}
