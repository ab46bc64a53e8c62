package access

import (
	"context"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wheelworkhq/wheelwork/access/audit"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// refused counts a refused call for the audit log, and returns its error. p is nil if the caller is
// not known.
func (g *Guard) refused(ctx context.Context, p *Principal, method, app string, err error) error {
	code := ""
	switch status.Code(err) {
	case codes.Unauthenticated:
		code = "call.unauthenticated"
	case codes.PermissionDenied:
		code = "call.denied"
	default:
		return err
	}
	by := &apiv1.Attribution{}
	if p == nil {
		p = &Principal{}
	} else {
		by.Author, by.Kind, by.Token = p.Author(), p.Kind, p.Token
	}
	by.Address = p.AddressOf(ctx)
	g.Refusals.Add(by, audit.Row{Code: code, App: app, Object: strings.TrimPrefix(method, "/wheelwork.v1."), Outcome: audit.Denied, Message: status.Convert(err).Message()})
	return err
}
