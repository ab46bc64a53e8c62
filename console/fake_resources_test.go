package console

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// fakeResources are secrets and values of the fake.
type fakeResources struct {
	apiv1.UnimplementedSecretsServer
	apiv1.UnimplementedValuesServer
	stored   []*apiv1.Secret
	sent     []string // the values of secrets, in the order of the calls
	entries  []*apiv1.Value
	versions uint64
	made     []*apiv1.App // besides billing and default
}

func (f *fakeAPI) populateResources(ts func(time.Duration) *timestamppb.Timestamp) {
	f.stored = []*apiv1.Secret{
		{App: "default", Name: "gateway-key", Version: 3, CreatedAt: ts(90 * time.Hour), UpdatedAt: ts(time.Hour)},
		{App: "default", Name: "odd" + evil, Version: 1, CreatedAt: ts(time.Hour), UpdatedAt: ts(time.Hour)},
	}
	f.entries = []*apiv1.Value{
		{App: "default", Bucket: "state", Key: "cursor/a b?&" + evil, Value: evil, Version: 4, Size: 29, UpdatedAt: ts(time.Hour)},
		{App: "default", Bucket: "state", Key: "lines", Value: "\nsecond\n", Version: 5, Size: 8, UpdatedAt: ts(time.Hour)},
		{App: "default", Bucket: "state", Key: "raw", ValueBytes: []byte{0, 1, 0xff}, Version: 6, Size: 3, UpdatedAt: ts(time.Hour)},
	}
	f.versions = 6
}

func (f *fakeAPI) ListSecrets(context.Context, *apiv1.ListSecretsRequest) (*apiv1.ListSecretsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &apiv1.ListSecretsResponse{Secrets: slices.Clone(f.stored)}, nil
}

func (f *fakeAPI) SetSecret(_ context.Context, r *apiv1.SetSecretRequest) (*apiv1.Secret, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if strings.Contains(r.Name, " ") {
		return nil, status.Errorf(codes.InvalidArgument, "name: %q has a space", r.Name)
	}
	next := &apiv1.Secret{App: r.App, Name: r.Name, Version: 1, CreatedAt: timestamppb.Now(), UpdatedAt: timestamppb.Now()}
	f.stored = slices.DeleteFunc(slices.Clone(f.stored), func(s *apiv1.Secret) bool {
		if s.Name == r.Name {
			next.Version = s.Version + 1
		}
		return s.Name == r.Name
	})
	f.stored, f.sent = append(f.stored, next), append(f.sent, r.Value)
	return next, nil
}

func (f *fakeAPI) DeleteSecret(_ context.Context, r *apiv1.DeleteSecretRequest) (*apiv1.DeleteSecretResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	left := slices.DeleteFunc(slices.Clone(f.stored), func(s *apiv1.Secret) bool { return s.Name == r.Name })
	if len(left) == len(f.stored) {
		return nil, status.Errorf(codes.NotFound, "there is no secret %q", r.Name)
	}
	f.stored = left
	return &apiv1.DeleteSecretResponse{}, nil
}

func (f *fakeAPI) ListGrants(context.Context, *apiv1.ListGrantsRequest) (*apiv1.ListGrantsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := &apiv1.ListGrantsResponse{}
	if f.grants != nil {
		out.Grants = append(out.Grants, f.grants)
	}
	return out, nil
}

func (f *fakeAPI) ListBuckets(context.Context, *apiv1.ListBucketsRequest) (*apiv1.ListBucketsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := &apiv1.ListBucketsResponse{Quota: 64 << 20}
	for _, x := range f.entries {
		if len(out.Buckets) == 0 {
			out.Buckets = append(out.Buckets, &apiv1.ListBucketsResponse_Bucket{Name: x.Bucket})
		}
		out.Buckets[0].Entries++
		out.Buckets[0].Bytes += x.Size
		out.Bytes += x.Size
	}
	return out, nil
}

func (f *fakeAPI) ListValues(_ context.Context, r *apiv1.ListValuesRequest) (*apiv1.ListValuesResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := &apiv1.ListValuesResponse{}
	for _, x := range f.entries {
		if x.Bucket == r.Bucket && strings.HasPrefix(x.Key, r.Prefix) {
			out.Values = append(out.Values, &apiv1.Value{App: x.App, Bucket: x.Bucket, Key: x.Key, Version: x.Version, Size: x.Size, UpdatedAt: x.UpdatedAt})
		}
	}
	if r.Prefix == "" && r.PageToken == "" && len(out.Values) > 0 {
		out.NextPageToken = "after&key"
	}
	return out, nil
}

// entry returns the position of a value; -1: there is none.
func (f *fakeAPI) entry(bucket, key string) int {
	return slices.IndexFunc(f.entries, func(x *apiv1.Value) bool { return x.Bucket == bucket && x.Key == key })
}

func (f *fakeAPI) GetValue(_ context.Context, r *apiv1.GetValueRequest) (*apiv1.Value, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if i := f.entry(r.Bucket, r.Key); i >= 0 {
		return f.entries[i], nil
	}
	return nil, status.Errorf(codes.NotFound, "there is no key %q in bucket %s", r.Key, r.Bucket)
}

// expected returns the refusal of a change of another version than the present one.
func (f *fakeAPI) expected(i int, expect *uint64) error {
	var now uint64
	if i >= 0 {
		now = f.entries[i].Version
	}
	if expect != nil && *expect != now {
		return status.Errorf(codes.Aborted, "it has version %d", now)
	}
	return nil
}

func (f *fakeAPI) PutValue(_ context.Context, r *apiv1.PutValueRequest) (*apiv1.Value, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := f.entry(r.Bucket, r.Key)
	if err := f.expected(i, r.ExpectVersion); err != nil {
		return nil, err
	}
	if len(r.Value) > 64<<10 {
		return nil, status.Errorf(codes.InvalidArgument, "value: %d bytes, at most 65536", len(r.Value))
	}
	f.versions++
	next := &apiv1.Value{App: r.App, Bucket: r.Bucket, Key: r.Key, Value: r.Value, Version: f.versions, Size: int64(len(r.Value)), UpdatedAt: timestamppb.Now()}
	f.entries = slices.Clone(f.entries)
	if i < 0 {
		f.entries = append(f.entries, next)
	} else {
		f.entries[i] = next
	}
	return next, nil
}

func (f *fakeAPI) DeleteValue(_ context.Context, r *apiv1.DeleteValueRequest) (*apiv1.DeleteValueResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := f.entry(r.Bucket, r.Key)
	if i < 0 {
		return nil, status.Error(codes.NotFound, fmt.Sprintf("there is no key %q", r.Key))
	}
	if err := f.expected(i, r.ExpectVersion); err != nil {
		return nil, err
	}
	f.entries = slices.Delete(slices.Clone(f.entries), i, i+1)
	return &apiv1.DeleteValueResponse{}, nil
}
