package sched

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"slices"
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
)

// noEntry and conflict are the errors of all calls about values, from handlers and from
// clients of the API.
func noEntry(bucket, key string) error {
	return status.Errorf(codes.NotFound, "there is no key %q in bucket %s", key, bucket)
}

func conflict(bucket, key string, row *apiv1.ValueRow) error {
	if row == nil {
		return status.Errorf(codes.Aborted, "key %q in bucket %s is not there any more", key, bucket)
	}
	return status.Errorf(codes.Aborted, "key %q in bucket %s has version %d: somebody else has changed it", key, bucket, row.Version)
}

// value returns the row of a value, or nil if there is none.
func (l *loop) value(app, bucket, key string) *apiv1.ValueRow {
	if a := l.apps[app]; a != nil {
		return a.slots[job.SlotOfValue(bucket, key)].Value(bucket, key)
	}
	return nil
}

func (a *app) valueBytes() (n int64) {
	for _, s := range a.slots {
		n += s.ValueBytes()
	}
	return n
}

func (a *app) valueQuota() int64 {
	return cmp.Or(a.slots[job.ModuleSlot].Settings.GetKvBytes(), job.DefaultKVSize)
}

// put is a request to set a value.
type put struct {
	app, bucket, key string
	value            []byte
	expect           *uint64
	id               string // of the call, to recognise a repeated one; "": none
}

// putValue sets a value if the version that the caller expects is the current one. If the
// call with this id wrote the current value, it returns that value again.
func (l *loop) putValue(p *put) (*apiv1.ValueRow, error) {
	a := l.app(p.app)
	s := a.slots[job.SlotOfValue(p.bucket, p.key)]
	row := s.Value(p.bucket, p.key)
	if p.id != "" && row.GetId() == p.id {
		return row, nil
	}
	if !job.Swap(row, p.expect) {
		return nil, conflict(p.bucket, p.key, row)
	}
	if grows := s.GrowsBy(p.bucket, p.key, p.value); grows > 0 && a.valueBytes()+grows > a.valueQuota() {
		return nil, status.Errorf(codes.ResourceExhausted, "the keys and values of app %s would take more than %d KiB: delete some, or allow more with `wheelwork app set %s --kv-quota`", p.app, a.valueQuota()>>10, p.app)
	}
	if err := l.refuse(); err != nil {
		return nil, err
	}
	row = &apiv1.ValueRow{Value: p.value, Version: s.NextVersion(), AtMs: l.nowMs, Id: p.id}
	l.record(s, &apiv1.Record{Kind: &apiv1.Record_ValuePut{ValuePut: &apiv1.ValuePut{Bucket: p.bucket, Key: p.key, Row: row}}})
	return row, nil
}

func (l *loop) deleteValue(app, bucket, key string, expect *uint64) error {
	row := l.value(app, bucket, key)
	switch {
	case row == nil:
		return noEntry(bucket, key)
	case !job.Swap(row, expect):
		return conflict(bucket, key, row)
	}
	if err := l.refuseChange(); err != nil {
		return err
	}
	l.record(l.apps[app].slots[job.SlotOfValue(bucket, key)], &apiv1.Record{Kind: &apiv1.Record_ValueDelete{ValueDelete: &apiv1.ValueDelete{Bucket: bucket, Key: key}}})
	return nil
}

// errPageEnd ends a scan of rows.
var errPageEnd = errors.New("the page is full")

type valuesAPI struct {
	apiv1.UnimplementedValuesServer
	s *Server
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
		return invalid(err)
	}
	if err := job.CheckKey(bucket, key); err != nil {
		return invalid(err)
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
		return nil, invalid(err)
	}
	return data, nil
}

func (a *valuesAPI) GetValue(ctx context.Context, req *apiv1.GetValueRequest) (*apiv1.Value, error) {
	app := appOf(req.App)
	if err := checkEntry(app, req.Bucket, req.Key); err != nil {
		return nil, err
	}
	return ask(ctx, a.s.loop, func(l *loop) (*apiv1.Value, error) {
		if row := l.value(app, req.Bucket, req.Key); row != nil {
			return valueMessage(app, req.Bucket, req.Key, row), nil
		}
		return nil, noEntry(req.Bucket, req.Key)
	})
}

func (a *valuesAPI) PutValue(ctx context.Context, req *apiv1.PutValueRequest) (*apiv1.Value, error) {
	p := &put{app: appOf(req.App), bucket: req.Bucket, key: req.Key, expect: req.ExpectVersion}
	if err := checkEntry(p.app, p.bucket, p.key); err != nil {
		return nil, err
	}
	var err error
	if p.value, err = oneValue("value", req.Value, req.ValueBytes); err != nil {
		return nil, err
	}
	return askDurable(ctx, a.s.loop, func(l *loop, answer func(*apiv1.Value, error)) {
		row, err := l.putValue(p)
		if err != nil {
			answer(nil, err)
			return
		}
		l.onDurable(func(err error) { answer(valueMessage(p.app, p.bucket, p.key, row), err) })
	})
}

func (a *valuesAPI) DeleteValue(ctx context.Context, req *apiv1.DeleteValueRequest) (*apiv1.DeleteValueResponse, error) {
	app := appOf(req.App)
	if err := checkEntry(app, req.Bucket, req.Key); err != nil {
		return nil, err
	}
	return askDurable(ctx, a.s.loop, func(l *loop, answer func(*apiv1.DeleteValueResponse, error)) {
		if err := l.deleteValue(app, req.Bucket, req.Key, req.ExpectVersion); err != nil {
			answer(nil, err)
			return
		}
		l.onDurable(func(err error) { answer(&apiv1.DeleteValueResponse{}, err) })
	})
}

// ListValues reads the store and not the loop's state, because the rows of the store are
// sorted.
func (a *valuesAPI) ListValues(ctx context.Context, req *apiv1.ListValuesRequest) (*apiv1.ListValuesResponse, error) {
	app := appOf(req.App)
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
	if err := a.s.loop.caughtUp(ctx); err != nil {
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
	return ask(ctx, a.s.loop, func(l *loop) (*apiv1.ListBucketsResponse, error) {
		resp := &apiv1.ListBucketsResponse{Quota: job.DefaultKVSize}
		a := l.apps[appOf(req.App)]
		if a == nil {
			return resp, nil
		}
		resp.Bytes, resp.Quota = a.valueBytes(), a.valueQuota()
		byName := map[string]*apiv1.ListBucketsResponse_Bucket{}
		for _, s := range a.slots {
			s.Buckets(func(name string, b job.Bucket) {
				m := byName[name]
				if m == nil {
					m = &apiv1.ListBucketsResponse_Bucket{Name: name}
					byName[name] = m
					resp.Buckets = append(resp.Buckets, m)
				}
				m.Entries += b.Entries
				m.Bytes += b.Bytes
			})
		}
		slices.SortFunc(resp.Buckets, func(a, b *apiv1.ListBucketsResponse_Bucket) int { return strings.Compare(a.Name, b.Name) })
		return resp, nil
	})
}
