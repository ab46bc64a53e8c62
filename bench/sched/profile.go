package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/google/pprof/profile"
)

// profile takes a CPU profile of the process for the given seconds.
func (d *dev) profile(ctx context.Context, seconds int) (*profile.Profile, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(seconds)*time.Second+patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", d.pprof, seconds), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+d.token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // it was read
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10)) // the reason
		return nil, fmt.Errorf("%s: %s", resp.Status, text)
	}
	return profile.Parse(resp.Body)
}

// watch takes one-second profiles of a process until end is called.
func (b *bench) watch(ctx context.Context, d *dev) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		for ctx.Err() == nil {
			p, err := d.profile(ctx, 1)
			if err != nil {
				if ctx.Err() == nil {
					b.note("profile of the server: %v", err)
				}
				return
			}
			b.profiles = append(b.profiles, p)
		}
	}()
	return func() { cancel(); <-over }
}

// writeProfile writes the merged profiles of all processes to the file of --profile.
func (b *bench) writeProfile() (err error) {
	if b.profile == "" {
		return nil
	}
	if len(b.profiles) == 0 {
		return errors.New("--profile: no server ran for as long as a second")
	}
	all, err := profile.Merge(b.profiles)
	if err != nil {
		return fmt.Errorf("--profile: %w", err)
	}
	f, err := os.Create(b.profile)
	if err != nil {
		return fmt.Errorf("--profile: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return all.Write(f)
}
