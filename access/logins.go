package access

import (
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// This file signs in a command line that a user approves in a browser. The command line makes a
// secret, and shows the user a code, which is a part of the secret's digest. So nothing is stored
// before a user approves, and no other client can claim the approval.

const (
	// codeBytes of the digest are the code: 80 bits, so that a client cannot make a secret for the code
	// of another one.
	codeBytes    = 10
	minSecret    = 26
	maxSecret    = 128
	approvalLife = 10 * time.Minute
)

// loginCode returns the code of a secret as it is stored.
func loginCode(secret string) string {
	digest := Digest(secret)
	return tokenText.EncodeToString(digest[:codeBytes])
}

// readCode returns a code as it is stored.
func readCode(text string) (string, error) {
	code := strings.ToLower(strings.NewReplacer("-", "", " ", "").Replace(text))
	if b, err := tokenText.DecodeString(code); len(text) > 40 || err != nil || len(b) != codeBytes {
		return "", invalid("%.40q is not a code: it has 16 characters, as the command line shows them", text)
	}
	return code, nil
}

// ApproveLogin returns the changes with which a user lets a command line act for it.
func (s *State) ApproveLogin(by By, text string) ([]Change, error) {
	code, err := readCode(text)
	if err != nil {
		return nil, err
	}
	own := s.sessions[by.Principal.Token]
	if own == nil || own.Principal != by.Principal.Name {
		return nil, status.Error(codes.FailedPrecondition, "only a user that has signed in may approve a command line: sign in with your name, not with a token")
	}
	login := &apiv1.LoginRow{Code: code, Principal: own.Principal, Groups: own.Groups, ExpiresMs: by.Now.Add(approvalLife).UnixMilli()}
	if s.principals[own.Principal].GetProvider() != nil {
		login.LimitMs = own.LimitMs // the groups are as old as this session
	}
	var changes []Change
	for _, other := range s.logins {
		if other.Code != code && (other.Principal == own.Principal || other.ExpiresMs <= by.Now.UnixMilli()) {
			changes = append(changes, endLogin(other.Code))
		}
	}
	return append(changes, Change{Put: &apiv1.AccessPut{Kind: &apiv1.AccessPut_Login{Login: login}}}), nil
}

func endLogin(code string) Change {
	return Change{Delete: &apiv1.AccessDelete{Kind: loginRow, Id: code}}
}

// errNotApproved is the answer to a command line that waits for a user.
var errNotApproved = status.Error(codes.NotFound, "no user has approved this code yet, or the approval is older than ten minutes")

// ClaimLogin returns the changes that start a session for the holder of a secret, and the text of its
// token, if a user has approved the code.
func (s *State) ClaimLogin(by By, secret, address, program string) ([]Change, *apiv1.Session, string, error) {
	if len(secret) < minSecret || len(secret) > maxSecret {
		return nil, nil, "", invalid("the secret has %d characters, want %d to %d random ones", len(secret), minSecret, maxSecret)
	}
	code := loginCode(secret)
	login := s.logins[code]
	if login == nil || login.ExpiresMs <= by.Now.UnixMilli() {
		return nil, nil, "", errNotApproved
	}
	row := s.principals[login.Principal]
	if row == nil || row.Disabled {
		return nil, nil, "", status.Errorf(codes.PermissionDenied, "%s is disabled", login.Principal)
	}
	token, err := NewToken(by.Random)
	if err != nil {
		return nil, nil, "", err
	}
	opened, m := s.openSession(&apiv1.SessionRow{
		Principal: login.Principal, Address: address, Program: program, Groups: login.Groups, LimitMs: login.LimitMs,
	}, token, by.Now)
	return append([]Change{endLogin(code)}, opened...), m, token, nil
}
