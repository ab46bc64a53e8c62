package oidc

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

const (
	patience  = 15 * time.Second // of each request to the provider
	maxAnswer = 1 << 20          // bytes of an answer of the provider
	// PendingLife is how long a person may take to sign in at the provider.
	PendingLife = 15 * time.Minute
)

// Config describes a provider, and this installation as its client.
type Config struct {
	Issuer       string // its address, https beyond this machine; "": there is no provider
	ClientID     string
	ClientSecret string // "": the client is public
	// Callback is the address of the page of this installation to which the provider sends the
	// browser. The provider must know it.
	Callback string
	Title    string // of the provider on the sign-in page; default: the host of the issuer
	// NameClaim has the name of a new user. Default: preferred_username, or else a verified email.
	NameClaim string
	// GroupsClaim has the groups of the person, a text or a list of texts. Default: groups.
	GroupsClaim string
	Scopes      []string     // requested beside openid; default: profile, email
	Client      *http.Client // default: one with bounds for time and size
}

// Check returns an error that names the field that is wrong.
func (c *Config) Check() error {
	for _, x := range []struct{ what, address string }{{"the issuer", c.Issuer}, {"the public URL", c.Callback}} {
		u, err := url.Parse(x.address)
		if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" || u.Scheme != "https" && (u.Scheme != "http" || !local(u.Hostname())) {
			return fmt.Errorf("%s is %.200q, want an address that begins with https:// (or http:// on this machine)", x.what, x.address)
		}
	}
	if c.ClientID == "" {
		return errors.New("the id of the client is missing: the provider gives one when it registers this installation")
	}
	return nil
}

func local(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// Provider signs people in. It is safe for concurrent use. It reads the description of the provider at
// the first sign-in, so that a provider that does not answer keeps no server from starting.
type Provider struct {
	conf   Config
	client *http.Client

	mu    sync.Mutex // held while the description is read
	known *known
}

// known is the description of a provider.
type known struct {
	*oidc.Provider
	endSession string // where a person signs out; "": the provider has no such address
}

// New returns a provider. It checks the configuration, and does not call the provider.
func New(c Config) (*Provider, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	if c.Title == "" {
		u, _ := url.Parse(c.Issuer) //nolint:errcheck // it was checked
		c.Title = u.Hostname()
	}
	if c.GroupsClaim == "" {
		c.GroupsClaim = "groups"
	}
	if len(c.Scopes) == 0 {
		c.Scopes = []string{"profile", "email"}
	}
	p := &Provider{conf: c, client: c.Client}
	if p.client == nil {
		p.client = &http.Client{Timeout: patience, Transport: bounded{http.DefaultTransport}}
	}
	return p, nil
}

// Title returns the name of the provider for people.
func (p *Provider) Title() string { return p.conf.Title }

// bounded limits the answers of a provider.
type bounded struct{ http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, maxAnswer), resp.Body}
	}
	return resp, err
}

// describe returns the description of the provider, which it reads until it has succeeded once.
func (p *Provider) describe(ctx context.Context) (*known, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known != nil {
		return p.known, nil
	}
	// The keys are read later, with the client of this context but beyond its end.
	found, err := oidc.NewProvider(oidc.ClientContext(context.WithoutCancel(ctx), p.client), p.conf.Issuer)
	if err != nil {
		return nil, &UnavailableError{fmt.Errorf("read the description of the provider %s: %w", p.conf.Issuer, err)}
	}
	var more struct {
		EndSession string `json:"end_session_endpoint"`
	}
	if err := found.Claims(&more); err != nil {
		return nil, &UnavailableError{err}
	}
	p.known = &known{found, more.EndSession}
	return p.known, nil
}

// UnavailableError says that the provider could not be asked: the same sign-in may succeed a moment
// later.
type UnavailableError struct{ err error }

func (e *UnavailableError) Error() string { return e.err.Error() }
func (e *UnavailableError) Unwrap() error { return e.err }

// Pending is a sign-in that has begun. Its owner keeps it with the browser that began it, so that no
// other browser can finish it. It is of no use to another process than the browser's.
type Pending struct {
	State    string    `json:"state"`
	Nonce    string    `json:"nonce"`
	Verifier string    `json:"verifier"` // of PKCE
	Until    time.Time `json:"until"`
	Next     string    `json:"next"` // for the caller: the page after the sign-in
}

// Begin returns the address at which a browser signs in.
func (p *Provider) Begin(ctx context.Context, now time.Time) (address string, pending *Pending, err error) {
	k, err := p.describe(ctx)
	if err != nil {
		return "", nil, err
	}
	pending = &Pending{State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier(), Until: now.Add(PendingLife).Truncate(time.Second)}
	return p.oauth(k).AuthCodeURL(pending.State, oidc.Nonce(pending.Nonce), oauth2.S256ChallengeOption(pending.Verifier)), pending, nil
}

func (p *Provider) oauth(k *known) *oauth2.Config {
	return &oauth2.Config{
		ClientID: p.conf.ClientID, ClientSecret: p.conf.ClientSecret, RedirectURL: p.conf.Callback,
		Endpoint: k.Endpoint(), Scopes: append([]string{oidc.ScopeOpenID}, p.conf.Scopes...),
	}
}

// Person is the result of a sign-in at the provider.
type Person struct {
	Issuer, Subject string
	Name            string // as the claim has it; "": the provider tells none
	Groups          []string
}

// Finish verifies the answer with which the provider sent a browser back. answer is the query of the
// address.
func (p *Provider) Finish(ctx context.Context, pending *Pending, answer url.Values, now time.Time) (*Person, error) {
	state := answer.Get("state")
	switch {
	case !now.Before(pending.Until):
		return nil, fmt.Errorf("the sign-in took more than %v: begin again", PendingLife)
	case state == "" || subtle.ConstantTimeCompare([]byte(state), []byte(pending.State)) != 1:
		return nil, errors.New("the answer belongs to another sign-in: begin again")
	}
	if why := answer.Get("error"); why != "" {
		if text := answer.Get("error_description"); text != "" {
			why += ": " + text
		}
		return nil, fmt.Errorf("the provider has refused the sign-in: %.300s", why)
	}
	k, err := p.describe(ctx)
	if err != nil {
		return nil, err
	}
	ctx = oidc.ClientContext(ctx, p.client)
	tokens, err := p.oauth(k).Exchange(ctx, answer.Get("code"), oauth2.VerifierOption(pending.Verifier))
	if err != nil {
		if refused := (*oauth2.RetrieveError)(nil); errors.As(err, &refused) && refused.Response.StatusCode < 500 {
			return nil, fmt.Errorf("the provider has refused the code of the sign-in: %.300s", refused.Error())
		}
		return nil, &UnavailableError{fmt.Errorf("ask the provider for the tokens of the sign-in: %w", err)}
	}
	raw, ok := tokens.Extra("id_token").(string)
	if !ok {
		return nil, errors.New("the provider has sent no ID token: is the scope openid allowed for this client?")
	}
	id, err := k.Verifier(&oidc.Config{ClientID: p.conf.ClientID, Now: func() time.Time { return now }}).Verify(ctx, raw)
	if err != nil {
		return nil, fmt.Errorf("the ID token of the provider is not valid: %w", err)
	}
	if subtle.ConstantTimeCompare([]byte(id.Nonce), []byte(pending.Nonce)) != 1 {
		return nil, errors.New("the ID token of the provider belongs to another sign-in: begin again")
	}
	claims := claims{}
	if err := id.Claims(&claims); err != nil {
		return nil, fmt.Errorf("the claims of the ID token cannot be read: %w", err)
	}
	if claims[p.conf.GroupsClaim] == nil && k.UserInfoEndpoint() != "" {
		if err := p.userInfo(ctx, k, tokens, id.Subject, claims); err != nil {
			return nil, err
		}
	}
	name, err := claims.name(p.conf.NameClaim)
	if err != nil {
		return nil, err
	}
	groups, err := claims.texts(p.conf.GroupsClaim)
	return &Person{Issuer: id.Issuer, Subject: id.Subject, Name: name, Groups: groups}, err
}

// userInfo adds the claims that the provider has not put in the ID token. Those of the ID token win.
func (p *Provider) userInfo(ctx context.Context, k *known, tokens *oauth2.Token, subject string, into claims) error {
	info, err := k.UserInfo(ctx, oauth2.StaticTokenSource(tokens))
	if err != nil {
		return &UnavailableError{fmt.Errorf("ask the provider for the groups of the person: %w", err)}
	}
	if info.Subject != subject {
		return errors.New("the provider has sent the claims of another person")
	}
	more := claims{}
	if err := info.Claims(&more); err != nil {
		return fmt.Errorf("the claims of the provider cannot be read: %w", err)
	}
	for name, value := range more {
		if _, had := into[name]; !had {
			into[name] = value
		}
	}
	return nil
}

// SignOut returns the address at which a browser ends its session at the provider, which then sends it to
// an address of this installation. "": the provider has none, or does not answer.
func (p *Provider) SignOut(ctx context.Context, back string) string {
	k, err := p.describe(ctx)
	if err != nil || k.endSession == "" {
		return ""
	}
	u, err := url.Parse(k.endSession)
	if err != nil || u.Scheme != "https" && !local(u.Hostname()) {
		return ""
	}
	q := u.Query()
	q.Set("client_id", p.conf.ClientID)
	q.Set("post_logout_redirect_uri", back)
	u.RawQuery = q.Encode()
	return u.String()
}

// claims are what a provider says of a person.
type claims map[string]any

// name returns the name of the person from a claim. An email counts only if the provider has verified
// it: otherwise a person could take the name of another one.
func (c claims) name(claim string) (string, error) {
	if claim == "" {
		if claim = "preferred_username"; c[claim] == nil {
			claim = "email"
		}
	}
	name, _ := c[claim].(string)
	if name = strings.TrimSpace(name); name == "" {
		return "", fmt.Errorf("the provider tells no claim %s, which is the name of the user: choose another one (--oidc-name-claim), or ask for its scope (--oidc-scope)", claim)
	}
	if claim == "email" && c["email_verified"] != true && c["email_verified"] != "true" {
		return "", errors.New("the provider has not verified the email address, which would be the name of the user")
	}
	return name, nil
}

// texts returns the texts of a claim.
func (c claims) texts(claim string) ([]string, error) {
	switch x := c[claim].(type) {
	case nil:
		return nil, nil
	case string:
		return []string{x}, nil
	case []any:
		var all []string
		for _, v := range x {
			text, ok := v.(string)
			if !ok {
				return nil, fmt.Errorf("the claim %s of the provider has an entry that is no text", claim)
			}
			all = append(all, text)
		}
		slices.Sort(all)
		return slices.Compact(all), nil
	}
	return nil, fmt.Errorf("the claim %s of the provider is neither a text nor a list of texts", claim)
}
