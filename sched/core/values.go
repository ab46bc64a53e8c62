package core

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

// NoEntry and conflict are the errors of all calls about values, from handlers and from
// clients of the API.
func NoEntry(bucket, key string) error {
	return status.Errorf(codes.NotFound, "there is no key %q in bucket %s", key, bucket)
}

func conflict(bucket, key string, row *apiv1.ValueRow) error {
	if row == nil {
		return status.Errorf(codes.Aborted, "key %q in bucket %s is not there any more", key, bucket)
	}
	return status.Errorf(codes.Aborted, "key %q in bucket %s has version %d: somebody else has changed it", key, bucket, row.Version)
}

// Value returns the row of a value, or nil if there is none.
func (gu *Guests) Value(app, bucket, key string) *apiv1.ValueRow {
	if a := gu.l.State.apps[app]; a != nil {
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

// ValueChange is a request to set a value.
type ValueChange struct {
	App, Bucket, Key string
	Value            []byte
	Expect           *uint64
	id               string // of the call, to recognise a repeated one; "": none
}

// PutValue sets a value if the version that the caller expects is the current one. If the
// call with this id wrote the current value, it returns that value again.
func (gu *Guests) PutValue(p *ValueChange) (*apiv1.ValueRow, error) {
	a := gu.l.State.app(p.App)
	s := a.slots[job.SlotOfValue(p.Bucket, p.Key)]
	row := s.Value(p.Bucket, p.Key)
	if p.id != "" && row.GetId() == p.id {
		return row, nil
	}
	if !job.Swap(row, p.Expect) {
		return nil, conflict(p.Bucket, p.Key, row)
	}
	if grows := s.GrowsBy(p.Bucket, p.Key, p.Value); grows > 0 && a.valueBytes()+grows > a.valueQuota() {
		return nil, status.Errorf(codes.ResourceExhausted, "the keys and values of app %s would take more than %d KiB: delete some, or allow more with `wheelwork app set %s --kv-quota`", p.App, a.valueQuota()>>10, p.App)
	}
	if err := cmp.Or(gu.l.limits.mayAddApp(p.App), gu.l.commits.refuse()); err != nil {
		return nil, err
	}
	row = &apiv1.ValueRow{Value: p.Value, Version: s.NextVersion(), AtMs: gu.l.clock.nowMs, Id: p.id}
	gu.l.commits.record(s, &apiv1.Record{Kind: &apiv1.Record_ValuePut{ValuePut: &apiv1.ValuePut{Bucket: p.Bucket, Key: p.Key, Row: row}}})
	return row, nil
}

// DeleteValue records that a value is deleted, if its version is the expected one.
func (gu *Guests) DeleteValue(app, bucket, key string, expect *uint64) error {
	row := gu.Value(app, bucket, key)
	switch {
	case row == nil:
		return NoEntry(bucket, key)
	case !job.Swap(row, expect):
		return conflict(bucket, key, row)
	}
	if err := gu.l.commits.refuseChange(); err != nil {
		return err
	}
	gu.l.commits.record(gu.l.State.apps[app].slots[job.SlotOfValue(bucket, key)], &apiv1.Record{Kind: &apiv1.Record_ValueDelete{ValueDelete: &apiv1.ValueDelete{Bucket: bucket, Key: key}}})
	return nil
}

// SetSecret records a secret, whose value the caller has sealed.
func (gu *Guests) SetSecret(app, name string, sealed []byte) (*apiv1.SecretRow, error) {
	s := gu.l.State.app(app).slots[job.ModuleSlot]
	old := s.Secret(name)
	if old == nil && s.Secrets(func(*apiv1.SecretRow) {}) >= job.MaxSecrets {
		return nil, status.Errorf(codes.ResourceExhausted, "app %s has %d secrets, which is the limit", app, job.MaxSecrets)
	}
	if err := cmp.Or(gu.l.limits.mayAddApp(app), gu.l.commits.refuse()); err != nil {
		return nil, err
	}
	row := &apiv1.SecretRow{Name: name, Version: old.GetVersion() + 1, CreatedMs: old.GetCreatedMs(), UpdatedMs: gu.l.clock.nowMs, Sealed: sealed}
	if old == nil {
		row.CreatedMs = gu.l.clock.nowMs
	}
	gu.l.commits.record(s, &apiv1.Record{Kind: &apiv1.Record_SecretPut{SecretPut: &apiv1.SecretPut{Secret: row}}})
	return row, nil
}

// ResealSecret records a secret whose caller has sealed the same value with another key. It
// changes nothing if the secret is no longer the sealed bytes was. It returns the secret
// as it is afterwards; nil: there is none.
func (gu *Guests) ResealSecret(app, name string, was, sealed []byte) (*apiv1.SecretRow, error) {
	old := gu.Secret(app, name)
	if old == nil || !bytes.Equal(old.Sealed, was) {
		return old, nil
	}
	if err := gu.l.commits.refuse(); err != nil {
		return nil, err
	}
	row := &apiv1.SecretRow{Name: name, Version: old.Version, CreatedMs: old.CreatedMs, UpdatedMs: old.UpdatedMs, Sealed: sealed}
	gu.l.commits.record(gu.l.State.apps[app].slots[job.ModuleSlot], &apiv1.Record{Kind: &apiv1.Record_SecretPut{SecretPut: &apiv1.SecretPut{Secret: row, Resealed: true}}})
	return row, nil
}

// Secret returns the row of a secret, with the sealed value; nil: there is none.
func (gu *Guests) Secret(app, name string) *apiv1.SecretRow {
	if a := gu.l.State.apps[app]; a != nil {
		return a.slots[job.ModuleSlot].Secret(name)
	}
	return nil
}

// NoSecret returns the error for a secret that does not exist.
func NoSecret(app, name string) error {
	return status.Errorf(codes.NotFound, "there is no secret %q in app %q: `wheelwork secret list` shows what there is", name, app)
}

// PutGrants records the capabilities that a module may use.
func (gu *Guests) PutGrants(m *apiv1.ModuleGrants) (*apiv1.ModuleGrants, error) {
	refuse := gu.l.commits.refuse
	if job.Nothing(m.Grants) {
		refuse = gu.l.commits.refuseChange // grants can be revoked even on a full disk
	}
	if err := cmp.Or(gu.l.Holds.Free(m.App), gu.l.limits.mayAddApp(m.App), refuse()); err != nil {
		return nil, err
	}
	gu.setGrants(m)
	return grantsMessage(gu.l.State.app(m.App).slots[job.ModuleSlot], m.Module), nil
}

// setGrants records the grants of a module.
func (gu *Guests) setGrants(m *apiv1.ModuleGrants) {
	m.UpdatedAt = timestamppb.New(gu.l.clock.now)
	gu.l.commits.record(gu.l.State.app(m.App).slots[job.ModuleSlot], &apiv1.Record{Kind: &apiv1.Record_GrantsPut{GrantsPut: &apiv1.GrantsPut{Grants: m}}})
}

// GrantsMessage returns the grants of a module as the API shows them.
func (gu *Guests) GrantsMessage(app, module string) *apiv1.ModuleGrants {
	if a := gu.l.State.apps[app]; a != nil {
		return grantsMessage(a.slots[job.ModuleSlot], module)
	}
	return &apiv1.ModuleGrants{App: app, Module: module}
}

// ListGrants returns the grants of the modules of an app that request or have any, by name.
func (gu *Guests) ListGrants(app string) (all []*apiv1.ModuleGrants) {
	a := gu.l.State.apps[app]
	if a == nil {
		return nil
	}
	s := a.slots[job.ModuleSlot]
	var names []string
	s.Granted(func(m *apiv1.ModuleGrants) { names = append(names, m.Module) })
	for _, m := range s.Modules {
		if !job.Nothing(m.Requests) {
			names = append(names, m.Name)
		}
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		all = append(all, grantsMessage(s, name))
	}
	return all
}

// GrantsMessage returns the grants of a module as the API shows them, with the requested
// and the effective capabilities of each of its versions.
func grantsMessage(s *job.Slot, module string) *apiv1.ModuleGrants {
	m := proto.CloneOf(s.Grants(module))
	if m == nil {
		m = &apiv1.ModuleGrants{App: s.App, Module: module}
	}
	for _, v := range s.Modules {
		if v.Name == module {
			m.Versions = append(m.Versions, &apiv1.GrantedVersion{
				Version: v.Version, Requested: v.Requests, Effective: job.Effective(v.Requests, m.Grants),
			})
		}
	}
	slices.SortFunc(m.Versions, func(a, b *apiv1.GrantedVersion) int { return strings.Compare(a.Version, b.Version) })
	return m
}

// DeleteSecret records that a secret is deleted.
func (gu *Guests) DeleteSecret(app, name string) error {
	if gu.Secret(app, name) == nil {
		return NoSecret(app, name)
	}
	if err := gu.l.commits.refuseChange(); err != nil {
		return err
	}
	gu.l.commits.record(gu.l.State.apps[app].slots[job.ModuleSlot], &apiv1.Record{Kind: &apiv1.Record_SecretDelete{SecretDelete: &apiv1.SecretDelete{Name: name}}})
	return nil
}

// Secrets returns the rows of the secrets of an app, by name.
func (gu *Guests) Secrets(app string) (rows []*apiv1.SecretRow) {
	if a := gu.l.State.apps[app]; a != nil {
		a.slots[job.ModuleSlot].Secrets(func(row *apiv1.SecretRow) { rows = append(rows, row) })
	}
	slices.SortFunc(rows, func(a, b *apiv1.SecretRow) int { return strings.Compare(a.Name, b.Name) })
	return rows
}

// Buckets returns the buckets of an app by name, with the bytes that its values take and
// may take.
func (gu *Guests) Buckets(app string) *apiv1.ListBucketsResponse {
	resp := &apiv1.ListBucketsResponse{Quota: job.DefaultKVSize}
	a := gu.l.State.apps[app]
	if a == nil {
		return resp
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
	return resp
}
