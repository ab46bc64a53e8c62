package console

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/scriptkit"
	"github.com/wheelworkhq/wheelwork/runtime/script"
	"github.com/wheelworkhq/wheelwork/runtime/wasm"
)

// fakeModules are the parts of the API about modules that the page of a module uses.
type fakeModules struct {
	apiv1.UnimplementedModuleAccessServer
	grants *apiv1.ModuleGrants // of the module totals
	users  []string            // what names each version and each alias
	code   map[string][]byte   // of scripts, by name@version
	bare   bool                // the server has no interpreter
}

// lateFees are the sources of the script late-fees in its versions.
const (
	lateFees6 = "export default function main(ctx) {\n  return 5;\n}\n"
	lateFees7 = "export default function main(ctx) {\n  return 6; // " + evil + "\n}\n"
)

// addScript adds a version of the script late-fees.
func (f *fakeAPI) addScript(version, source string, at *timestamppb.Timestamp) {
	code, err := scriptkit.Pack(script.JavaScript, "main.js", map[string]string{"main.js": source, "lib/rate.js": "export const rate = 5;\n"})
	if err != nil {
		panic(err)
	}
	m := &apiv1.Module{App: "default", Name: "late-fees", Version: version, Manifest: `{"handlers":[{"name":"main"}],"capabilities":{"kv":["fees"]}}`, Size: int64(len(code)), CreatedAt: at}
	if code, err = f.script(m, code); err != nil {
		panic(err)
	}
	f.modules = append(f.modules, m)
	f.code[m.Name+"@"+version] = code
}

// script completes the description of an upload that is a script, and returns the bytes to store. It
// refuses "(;" in a main file.
func (f *fakeAPI) script(m *apiv1.Module, body []byte) ([]byte, error) {
	s, err := script.Unpack(body)
	if err != nil {
		return body, nil
	}
	if line := strings.Count(s.Files[s.Main][:max(0, strings.Index(s.Files[s.Main], "(;"))], "\n") + 1; strings.Contains(s.Files[s.Main], "(;") {
		return nil, status.Errorf(codes.InvalidArgument, "module refused: %s:%d:14: SyntaxError: unexpected token", s.Main, line)
	}
	if f.bare {
		return nil, status.Error(codes.FailedPrecondition, "it is a script, and the server does not have the interpreter")
	}
	if m.Manifest != "" {
		if body, err = wasm.WithManifest(body, m.Manifest); err != nil {
			return nil, status.Error(codes.InvalidArgument, err.Error())
		}
	}
	info, err := wasm.Inspect(body)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	m.Kind, m.Digest, m.Handlers, m.Interpreter, m.Requests = string(info.Kind), info.Digest, info.Handlers, s.Interpreter, &apiv1.Grants{}
	for _, b := range info.Manifest.Capabilities.KV {
		m.Requests.Kv = append(m.Requests.Kv, &apiv1.BucketGrant{Name: b.Name, Write: b.Write})
	}
	return body, nil
}

func (f *fakeAPI) populateModules(ts func(time.Duration) *timestamppb.Timestamp) {
	asked := &apiv1.Grants{
		Http: []*apiv1.HttpGrant{{Host: "api.example.com", Methods: []string{"POST"}, Paths: []string{"/in/"}}},
		Kv:   []*apiv1.BucketGrant{{Name: "state", Write: true}}, Secrets: []string{"gateway-key"}, Enqueue: []string{"settle"},
		Files: []*apiv1.FileGrant{{Mount: "/tmp", Write: true}},
	}
	f.modules = append(f.modules,
		&apiv1.Module{App: "default", Name: "totals", Version: "3", Digest: "sha256:" + strings.Repeat("ef", 32), Size: 3 << 20, Kind: "command", Handlers: []string{"main"}, Imports: []string{"wheelwork_v1.kv_get"}, CreatedAt: ts(3 * time.Hour)},
		&apiv1.Module{
			App: "default", Name: "totals", Version: "4-rc", Digest: "sha256:" + strings.Repeat("0f", 32), Size: 4 << 20, Kind: "command", Handlers: []string{"main", "charge" + evil},
			Imports: []string{"wheelwork_v1.kv_get", "wheelwork_v1.kv_put"}, Needs: []string{"wheelwork_v1.1"}, CreatedAt: ts(2 * time.Hour), Requests: asked,
			Signatures: []*apiv1.Signature{{Key: "ed25519:O2onvM62pC1io6jQKm8Nc2UyFXcd4kOmOsBIoYtZ2ik=", AddedAt: ts(time.Hour)}},
		})
	f.addScript("6", lateFees6, ts(2*time.Hour))
	f.addScript("7", lateFees7, ts(time.Hour))
	f.aliases = append(f.aliases, &apiv1.Alias{App: "default", Module: "late-fees", Name: "prod", Version: "6", Revision: 3})
	f.grants = &apiv1.ModuleGrants{
		App: "default", Module: "totals", UpdatedAt: ts(time.Hour), Revision: 5,
		Grants:   &apiv1.Grants{Secrets: []string{"gateway-key"}, Kv: []*apiv1.BucketGrant{{Name: "state", Write: true}}},
		Versions: []*apiv1.GrantedVersion{{Version: "4-rc", Requested: asked, Effective: &apiv1.Grants{Secrets: []string{"gateway-key"}, Kv: []*apiv1.BucketGrant{{Name: "state", Write: true}}}}},
	}
}

func (f *fakeAPI) GetModule(_ context.Context, r *apiv1.GetModuleRequest) (*apiv1.Module, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.modules {
		if m.Name == r.Name && m.Version == r.Version {
			return m, nil
		}
	}
	return nil, status.Errorf(codes.NotFound, "there is no module %s@%s", r.Name, r.Version)
}

func (f *fakeAPI) DeleteModule(ctx context.Context, r *apiv1.DeleteModuleRequest) (*apiv1.DeleteModuleResponse, error) {
	m, err := f.GetModule(ctx, &apiv1.GetModuleRequest{Name: r.Name, Version: r.Version})
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.inUse(r.Force); err != nil {
		return nil, err
	}
	f.modules = slices.Clone(f.modules)
	m2 := proto.CloneOf(m)
	m2.CollectedAt = timestamppb.Now()
	f.modules[slices.Index(f.modules, m)] = m2
	return &apiv1.DeleteModuleResponse{Bytes: m.Size}, nil
}

// inUse returns the refusal of a deletion of something that others name.
func (f *fakeAPI) inUse(force bool) error {
	if force || f.users == nil {
		return nil
	}
	s, err := status.New(codes.FailedPrecondition, "it is named by others").WithDetails(&apiv1.Refusal{Reason: "referenced", Names: f.users})
	if err != nil {
		return err
	}
	return s.Err()
}

func (f *fakeAPI) DownloadModule(r *apiv1.DownloadModuleRequest, s grpc.ServerStreamingServer[apiv1.DownloadModuleResponse]) error {
	m, err := f.GetModule(s.Context(), &apiv1.GetModuleRequest{Name: r.Name, Version: r.Version})
	if err != nil {
		return err
	}
	if m.CollectedAt != nil {
		return status.Error(codes.FailedPrecondition, "the bytes were deleted")
	}
	parts := []string{"\x00asm", "rest"}
	if code := f.code[r.Name+"@"+r.Version]; code != nil {
		parts = []string{string(code[:8]), string(code[8:])}
	}
	for _, part := range parts {
		if err := s.Send(&apiv1.DownloadModuleResponse{Data: []byte(part)}); err != nil {
			return err
		}
	}
	return nil
}

func (f *fakeAPI) GetRollout(_ context.Context, r *apiv1.GetRolloutRequest) (*apiv1.Rollout, error) {
	return &apiv1.Rollout{Name: r.Name, Version: r.Version, Ready: 1, Hosts: 2, ByHost: []*apiv1.HostRollout{
		{Host: "host-a", Name: "node-1", State: "ready", TookMs: 410},
		{Host: "host-b", Name: "node-2", State: "failed", Error: "no room on the disk " + evil},
	}}, nil
}

// TryScript succeeds with the input as the output, or fails as a stack of the language of the script says.
func (f *fakeAPI) TryScript(_ context.Context, r *apiv1.TryScriptRequest) (*apiv1.TryScriptResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := f.script(&apiv1.Module{Manifest: r.Manifest}, r.Code); err != nil {
		return nil, err
	}
	if r.Input == "" {
		return &apiv1.TryScriptResponse{Outcome: "retryable", Error: "ReferenceError: none is not defined " + evil, Code: "exception", TookMs: 3, Log: []*apiv1.TriedLine{
			{Level: "info", Text: "before (lib/rate.js:1:1)"},
			{Level: "error", Text: "    at default (main.js:2:10)"},
			{Level: "error", Text: "    at run (wheelwork.js:314:27)"},
			{Level: "error", Text: "    at lib (lib/rate.js:1:1)"},
		}}, nil
	}
	return &apiv1.TryScriptResponse{Outcome: "succeeded", Output: r.Handler + ":" + r.Input, TookMs: 1234, Log: []*apiv1.TriedLine{{Level: "warn", Text: "careful " + evil}}}, nil
}

func (f *fakeAPI) alias(module, name string) (int, *apiv1.Alias) {
	i := slices.IndexFunc(f.aliases, func(a *apiv1.Alias) bool { return a.Module == module && a.Name == name })
	if i < 0 {
		return i, nil
	}
	return i, f.aliases[i]
}

func (f *fakeAPI) GetAlias(_ context.Context, r *apiv1.GetAliasRequest) (*apiv1.Alias, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, a := f.alias(r.Module, r.Name); a != nil {
		return a, nil
	}
	return nil, status.Errorf(codes.NotFound, "there is no alias %s@%s", r.Module, r.Name)
}

func (f *fakeAPI) SetAlias(_ context.Context, r *apiv1.SetAliasRequest) (*apiv1.Alias, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.Canary != nil && (r.Canary.Percent <= 0 || r.Canary.Percent >= 100) {
		return nil, status.Errorf(codes.InvalidArgument, "canary: %v %% is not above 0 and below 100", r.Canary.Percent)
	}
	i, a := f.alias(r.Module, r.Name)
	if a == nil {
		a = &apiv1.Alias{Module: r.Module, Name: r.Name}
	}
	next := proto.CloneOf(a)
	if r.Version != "" && r.Version != a.Version {
		next.Version = r.Version
		next.Events = append([]*apiv1.AliasEvent{{What: "set", From: a.Version, To: r.Version}}, next.Events...)
	}
	next.Canary = proto.CloneOf(r.Canary)
	next.Revision++
	f.aliases = slices.Clone(f.aliases)
	if i < 0 {
		f.aliases = append(f.aliases, next)
	} else {
		f.aliases[i] = next
	}
	return next, nil
}

func (f *fakeAPI) DeleteAlias(_ context.Context, r *apiv1.DeleteAliasRequest) (*apiv1.DeleteAliasResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.inUse(r.Force); err != nil {
		return nil, err
	}
	f.aliases = slices.DeleteFunc(slices.Clone(f.aliases), func(a *apiv1.Alias) bool { return a.Module == r.Module && a.Name == r.Name })
	return &apiv1.DeleteAliasResponse{}, nil
}

func (f *fakeAPI) GetGrants(_ context.Context, r *apiv1.GetGrantsRequest) (*apiv1.ModuleGrants, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.grants != nil && f.grants.Module == r.Module {
		return f.grants, nil
	}
	return &apiv1.ModuleGrants{App: "default", Module: r.Module, Grants: &apiv1.Grants{}}, nil
}

func (f *fakeAPI) PutGrants(_ context.Context, r *apiv1.PutGrantsRequest) (*apiv1.ModuleGrants, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, k := range r.Grants.Grants.GetKv() {
		if k.Name == "" {
			return nil, status.Error(codes.InvalidArgument, "grants.kv[0]: the bucket has no name")
		}
	}
	next := proto.CloneOf(r.Grants)
	next.Revision, next.UpdatedAt, next.Versions = f.grants.GetRevision()+1, timestamppb.Now(), f.grants.GetVersions()
	f.grants = next
	return next, nil
}

// manyJobs adds jobs of another module before those that are there.
func (f *fakeAPI) manyJobs(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range n {
		f.jobs = append(f.jobs, &apiv1.Job{App: "default", Name: fmt.Sprintf("other-%04d", i), Handler: &apiv1.Handler{Module: "other@1"}})
	}
}

// CollectModules deletes the version 1 of totals, if it is older than what the caller asks for.
func (f *fakeAPI) CollectModules(_ context.Context, r *apiv1.CollectModulesRequest) (*apiv1.CollectModulesResponse, error) {
	age, err := time.ParseDuration(r.OlderThan)
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "older_than: %q is not a time, as 24h", r.OlderThan)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	out := &apiv1.CollectModulesResponse{Kept: int32(len(f.modules))}
	m := f.modules[0]
	if m.CollectedAt != nil || time.Since(m.CreatedAt.AsTime()) < age {
		return out, nil
	}
	out.Kept--
	out.Collected, out.Bytes = []*apiv1.Module{m}, m.Size
	if !r.DryRun {
		gone := proto.CloneOf(m)
		gone.CollectedAt = timestamppb.Now()
		f.modules = slices.Clone(f.modules)
		f.modules[0] = gone
	}
	return out, nil
}
