package node

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wheelworkhq/wheelwork/access"
	"github.com/wheelworkhq/wheelwork/access/oidc"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/console"
	"github.com/wheelworkhq/wheelwork/internal/credential"
)

// CallbackPath is the path to which an OpenID provider sends browsers back.
const CallbackPath = "/login/callback"

// federation signs people in that others know: an OpenID provider, or an authenticating proxy. It verifies
// the answer of the provider in this process, and starts the session with a token that may do nothing else.
type federation struct {
	provider *oidc.Provider // nil: there is none
	token    string         // of this process, with the role federation
	back     string         // the address of the sign-in page
	conn     *grpc.ClientConn
}

// newFederation returns nil if there is neither a provider nor a proxy.
func newFederation(people PeopleConfig) (*federation, error) {
	conf := people.OIDC
	f := &federation{token: credential.NewToken("in_")}
	switch {
	case conf.Issuer != "":
	case people.AuthProxy.Header != "":
		return f, nil
	default:
		return nil, nil
	}
	if people.OIDCSecretFile != "" {
		secret, err := credential.FileToken("--oidc-client-secret-file", people.OIDCSecretFile)
		if err != nil {
			return nil, err
		}
		conf.ClientSecret = secret
	}
	p, err := oidc.New(conf)
	if err != nil {
		return nil, err
	}
	f.provider, f.back = p, strings.TrimSuffix(conf.Callback, CallbackPath)+"/login"
	return f, nil
}

// console returns what the console needs; nil: there is no provider.
func (f *federation) console() *console.Provider {
	if f == nil || f.provider == nil {
		return nil
	}
	return &console.Provider{
		Title: f.provider.Title(), Begin: f.begin, Finish: f.finish,
		SignOut: func(ctx context.Context) string { return f.provider.SignOut(ctx, f.back) },
	}
}

func (f *federation) begin(ctx context.Context, next string) (address, kept string, err error) {
	address, pending, err := f.provider.Begin(ctx, time.Now())
	if err != nil {
		return "", "", refusal(err)
	}
	pending.Next = next
	b, err := json.Marshal(pending)
	return address, base64.RawURLEncoding.EncodeToString(b), err
}

func (f *federation) finish(ctx context.Context, kept string, answer url.Values) (token, next string, err error) {
	pending := &oidc.Pending{}
	b, err := base64.RawURLEncoding.DecodeString(kept)
	if err == nil {
		err = json.Unmarshal(b, pending)
	}
	if err != nil {
		return "", "", status.Error(codes.InvalidArgument, "the cookie of this sign-in cannot be read: begin again")
	}
	person, err := f.provider.Finish(ctx, pending, answer, time.Now())
	if err != nil {
		return "", "", refusal(err)
	}
	resp, err := apiv1.NewAccessClient(f.conn).Federate(ctx, &apiv1.FederateRequest{
		Issuer: person.Issuer, Subject: person.Subject, Name: person.Name, Groups: person.Groups, Program: "console",
	})
	return resp.GetToken(), pending.Next, err
}

// proxied signs in a visitor of the proxy.
func (f *federation) proxied(ctx context.Context, by console.Proxied) (token string, err error) {
	resp, err := apiv1.NewAccessClient(f.conn).Federate(ctx, &apiv1.FederateRequest{
		Issuer: access.AuthProxy, Subject: by.Name, Name: by.Name, Groups: by.Groups, Program: "console",
	})
	return resp.GetToken(), err
}

// refusal returns the status of an error of the provider.
func refusal(err error) error {
	if unavailable := (*oidc.UnavailableError)(nil); errors.As(err, &unavailable) {
		return status.Error(codes.Unavailable, err.Error())
	}
	return status.Error(codes.PermissionDenied, err.Error())
}
