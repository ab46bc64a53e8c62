package xxljob

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// Bounds of requests to executors.
const (
	answerTime = 5 * time.Second
	maxAnswer  = 4 << 20
)

// errNotSent marks a request that no executor has received.
var errNotSent = errors.New("not sent")

// caller sends requests to executors.
type caller struct {
	http  *http.Client
	token string
}

// call sends a request and returns the answer of the executor, which may be a refusal.
func (c *caller) call(ctx context.Context, address, path string, body any) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	b, err := json.Marshal(body)
	if err != nil {
		return answer{}, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, address+path, bytes.NewReader(b))
	if err != nil {
		return answer{}, err
	}
	r.Header.Set("Content-Type", "application/json;charset=UTF-8")
	r.Header.Set(TokenHeader, c.token)
	got, err := c.http.Do(r)
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) && op.Op == "dial" {
			err = fmt.Errorf("%w: %w", errNotSent, err)
		}
		return answer{}, err
	}
	defer got.Body.Close() //nolint:errcheck // the body was read
	b, err = io.ReadAll(io.LimitReader(got.Body, maxAnswer+1))
	switch {
	case err != nil:
		return answer{}, err
	case len(b) > maxAnswer:
		return answer{}, fmt.Errorf("%s%s: the answer has more than %d bytes", address, path, maxAnswer)
	case got.StatusCode != http.StatusOK:
		return answer{Code: codeFail, Msg: fmt.Sprintf("%s%s answers with the status %s", address, path, got.Status)}, nil
	}
	a, err := parseAnswer(b)
	if err != nil {
		return answer{}, fmt.Errorf("%s%s: the answer is not JSON: %w", address, path, err)
	}
	return a, nil
}

// parseAnswer reads the answer of an executor. Those in Go refuse a run with a list of callbacks.
func parseAnswer(b []byte) (a answer, err error) {
	if b = bytes.TrimSpace(b); len(b) == 0 || b[0] != '[' {
		return a, json.Unmarshal(b, &a)
	}
	list, err := parseCallbacks(b)
	if err == nil && len(list) == 0 {
		err = errors.New("an empty list")
	}
	if err != nil {
		return a, err
	}
	return answer{Code: list[0].Code, Msg: list[0].Msg}, nil
}

func (c *caller) beat(ctx context.Context, address string) bool {
	a, err := c.call(ctx, address, "/beat", struct{}{})
	return err == nil && a.Code == codeSuccess
}

// idle reports whether an executor has no run of a job.
func (c *caller) idle(ctx context.Context, address string, job int32) bool {
	a, err := c.call(ctx, address, "/idleBeat", jobRequest{job})
	return err == nil && a.Code == codeSuccess
}

// kill stops the runs of a job on an executor.
func (c *caller) kill(ctx context.Context, address string, job int32) error {
	a, err := c.call(ctx, address, "/kill", jobRequest{job})
	if err == nil && a.Code != codeSuccess {
		err = errors.New(or(a.text(), "the executor refuses to kill"))
	}
	return err
}

// log reads lines of a log.
func (c *caller) log(ctx context.Context, address string, of *call) (page logPage, err error) {
	a, err := c.call(ctx, address, "/log", logRequest{LogDateTime: of.Began, LogDateTim: of.Began, LogID: of.LogID, From: of.Line})
	if err != nil {
		return page, err
	}
	if a.Code != codeSuccess {
		return page, errors.New(or(a.text(), "the executor has no log"))
	}
	return page, a.value(&page)
}
