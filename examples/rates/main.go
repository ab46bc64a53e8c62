//go:build wasip1

// Rates is a handler that fetches exchange rates, stores them in a bucket and starts a
// job for each rate that moved. The input is a list of currencies, such as "EUR USD CHF".
// A retry continues where the earlier attempt stopped. A second run with the same rates
// starts no job.
package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/wheelworkhq/wheelwork/sdk/guest"
)

func init() {
	guest.Handle("main", fetch)
	// The requested capabilities; the owner of the app grants all or some of them.
	guest.Describe(`{
		"handlers": [{"name": "main", "timeout_ms": 60000, "idempotent": true}],
		"capabilities": {
			"http": [{"host": "rates.example.com", "paths": ["/v1/"]}],
			"kv": ["rates"],
			"secrets": ["RATES_KEY"],
			"enqueue": ["rate-moved"]
		}
	}`)
}

func main() {}

func fetch(ctx guest.Context) error {
	currencies := strings.Fields(string(ctx.Input()))
	done, err := resume(ctx)
	if err != nil {
		return err
	}
	for i := done; i < len(currencies); i++ {
		if ctx.Cancelled() {
			return guest.ErrCancelled
		}
		ctx.Progress(int64(i), int64(len(currencies)), currencies[i])
		rate, err := ask(ctx, currencies[i])
		if err != nil {
			return fmt.Errorf("%s: %w", currencies[i], err)
		}
		if err := keep(ctx, currencies[i], rate); err != nil {
			return fmt.Errorf("%s: %w", currencies[i], err)
		}
		if err := ctx.SetCheckpoint([]byte(strconv.Itoa(i + 1))); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(ctx, "%d rates\n", len(currencies))
	return err
}

// resume returns the number of currencies that earlier attempts of this run completed.
func resume(ctx guest.Context) (int, error) {
	text, err := ctx.Checkpoint()
	if errors.Is(err, guest.ErrNoEntry) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(text))
}

// ask fetches a rate. The host puts the key into the header; this module never sees it.
func ask(ctx guest.Context, currency string) (float64, error) {
	res, err := ctx.Send(guest.Request{
		URL:    "https://rates.example.com/v1/" + currency,
		Header: map[string][]string{"Authorization": {"Bearer {{secret:RATES_KEY}}"}},
	})
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 1024))
	if err != nil {
		return 0, err
	}
	switch {
	case res.Status == 404:
		return 0, guest.Permanent("unknown_currency", errors.New("there is no such currency"))
	case res.Status != 200:
		return 0, guest.Retryable("rates_down", 10*time.Second, fmt.Errorf("the server answered %d", res.Status))
	}
	rate, err := strconv.ParseFloat(strings.TrimSpace(string(body)), 64)
	if err != nil || rate <= 0 {
		return 0, guest.Permanent("bad_rate", fmt.Errorf("the server answered %.40q", body))
	}
	return rate, nil
}

// keep stores the rate in the bucket by compare-and-swap, and starts a job if the rate
// moved by more than a percent.
func keep(ctx guest.Context, currency string, rate float64) error {
	bucket := ctx.Bucket("rates")
	for {
		before, version, err := bucket.Get(currency)
		if err != nil && !errors.Is(err, guest.ErrNoEntry) {
			return err
		}
		_, err = bucket.Swap(currency, strconv.AppendFloat(nil, rate, 'f', -1, 64), version)
		if errors.Is(err, guest.ErrConflict) {
			continue // another run has changed the rate: compare with the new one
		}
		if err != nil {
			return err
		}
		was, err := strconv.ParseFloat(string(before), 64)
		if err != nil || math.Abs(rate-was) <= was/100 {
			return nil
		}
		ctx.Log().Info("moved", "currency", currency, "from", was, "to", rate)
		_, err = ctx.Enqueue(guest.Submit{Job: "rate-moved", Input: []byte(currency)})
		return errors.Join(err, ctx.Count("rates_moved", 1))
	}
}
