package api

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/job/naming"
	"github.com/wheelworkhq/wheelwork/sched/core"
)

// errPageEnd ends a scan of rows.
var errPageEnd = errors.New("the page is full")

type valuesAPI struct {
	apiv1.UnimplementedValuesServer
	s *Services
}

func valueMessage(app, bucket, key string, row *apiv1.ValueRow) *apiv1.Value {
	m := &apiv1.Value{App: app, Bucket: bucket, Key: key, Version: row.Version, Size: int64(len(row.Value)), UpdatedAt: timestamppb.New(time.UnixMilli(row.AtMs))}
	if utf8.Valid(row.Value) {
		m.Value = string(row.Value)
	} else {
		m.ValueBytes = row.Value
	}
	return m
}

func checkEntry(app, bucket, key string) error {
	if err := naming.Check("app", app); err != nil {
		return core.Invalid(err)
	}
	if err := job.CheckKey(bucket, key); err != nil {
		return core.Invalid(err)
	}
	return nil
}

// oneValue returns the value of a message that has it either as text or as bytes. what is
// the name of its field.
func oneValue(what, text string, data []byte) ([]byte, error) {
	if text != "" && len(data) > 0 {
		return nil, status.Errorf(codes.InvalidArgument, "%s and %s_bytes are both set: use one", what, what)
	}
	if len(data) == 0 {
		data = []byte(text)
	}
	if err := job.CheckValue(what, len(data)); err != nil {
		return nil, core.Invalid(err)
	}
	return data, nil
}

func (a *valuesAPI) GetValue(ctx context.Context, req *apiv1.GetValueRequest) (*apiv1.Value, error) {
	app := core.AppOf(req.App)
	if err := checkEntry(app, req.Bucket, req.Key); err != nil {
		return nil, err
	}
	return core.Ask(ctx, a.s.loop, func(l *core.Loop) (*apiv1.Value, error) {
		if row := l.Guests.Value(app, req.Bucket, req.Key); row != nil {
			return valueMessage(app, req.Bucket, req.Key, row), nil
		}
		return nil, core.NoEntry(req.Bucket, req.Key)
	})
}

func (a *valuesAPI) PutValue(ctx context.Context, req *apiv1.PutValueRequest) (*apiv1.Value, error) {
	p := &core.ValueChange{App: core.AppOf(req.App), Bucket: req.Bucket, Key: req.Key, Expect: req.ExpectVersion}
	if err := checkEntry(p.App, p.Bucket, p.Key); err != nil {
		return nil, err
	}
	var err error
	if p.Value, err = oneValue("value", req.Value, req.ValueBytes); err != nil {
		return nil, err
	}
	return core.Change(ctx, a.s.loop, func(l *core.Loop) (*apiv1.Value, error) {
		row, err := l.Guests.PutValue(p)
		if err != nil {
			return nil, err
		}
		return valueMessage(p.App, p.Bucket, p.Key, row), nil
	})
}

func (a *valuesAPI) DeleteValue(ctx context.Context, req *apiv1.DeleteValueRequest) (*apiv1.DeleteValueResponse, error) {
	app := core.AppOf(req.App)
	if err := checkEntry(app, req.Bucket, req.Key); err != nil {
		return nil, err
	}
	return core.Change(ctx, a.s.loop, func(l *core.Loop) (*apiv1.DeleteValueResponse, error) {
		return &apiv1.DeleteValueResponse{}, l.Guests.DeleteValue(app, req.Bucket, req.Key, req.ExpectVersion)
	})
}

// ListValues reads the store and not the loop's state, because the rows of the store are
// sorted.
func (a *valuesAPI) ListValues(ctx context.Context, req *apiv1.ListValuesRequest) (*apiv1.ListValuesResponse, error) {
	app := core.AppOf(req.App)
	if err := checkEntry(app, req.Bucket, "k"); err != nil {
		return nil, err
	}
	after, err := base64.RawURLEncoding.DecodeString(req.PageToken)
	switch {
	case err != nil:
		return nil, status.Error(codes.InvalidArgument, "page_token is not one that this method returned")
	case req.PageSize < 0 || req.PageSize > 1000:
		return nil, status.Errorf(codes.InvalidArgument, "page_size is %d, it must be 1 to 1000", req.PageSize)
	}
	if err := a.s.loop.CaughtUp(ctx); err != nil {
		return nil, err
	}
	size := int(cmp.Or(req.PageSize, 50))
	from := req.Prefix
	if len(after) > 0 && string(after) >= from {
		from = string(after) + "\x00" // the smallest key after it
	}
	rows := job.ValueRows(app, req.Bucket)
	resp := &apiv1.ListValuesResponse{}
	err = a.s.cfg.Store.Rows(rows, from, "", func(key string, value []byte) error {
		key = key[len(rows):]
		if !strings.HasPrefix(key, req.Prefix) {
			return errPageEnd
		}
		if len(resp.Values) == size {
			resp.NextPageToken = base64.RawURLEncoding.EncodeToString([]byte(resp.Values[size-1].Key))
			return errPageEnd
		}
		row := &apiv1.ValueRow{}
		if err := proto.Unmarshal(value, row); err != nil {
			return err
		}
		m := valueMessage(app, req.Bucket, key, row)
		m.Value, m.ValueBytes = "", nil
		resp.Values = append(resp.Values, m)
		return nil
	})
	if err != nil && !errors.Is(err, errPageEnd) {
		return nil, err
	}
	return resp, nil
}

func (a *valuesAPI) ListBuckets(ctx context.Context, req *apiv1.ListBucketsRequest) (*apiv1.ListBucketsResponse, error) {
	return core.Ask(ctx, a.s.loop, func(l *core.Loop) (*apiv1.ListBucketsResponse, error) {
		return l.Guests.Buckets(core.AppOf(req.App)), nil
	})
}
