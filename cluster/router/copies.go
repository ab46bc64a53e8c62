package router

import (
	"context"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// CopyApp takes a copy into a partition of this server, with the code of the modules.
func CopyApp(ctx context.Context, r *Router, partition string, services *Services, st *apiv1.AppState) error {
	u := r.Partitions[partition]
	var missing []string
	for _, m := range st.GetModules() {
		if m.CollectedAt == nil && !u.Code().Has(m.Digest) && !slices.Contains(missing, m.Digest) {
			missing = append(missing, m.Digest)
		}
	}
	missing = slices.DeleteFunc(missing, func(digest string) bool {
		for _, other := range r.Partitions { // the other partitions of this server have most of them
			if code, err := other.Code().Get(digest); err == nil {
				_, err := u.Code().Put(code)
				return err == nil
			}
		}
		return false
	})
	if missing = r.Peers.Fetch(ctx, u.Code(), st.ModulesAt, missing); len(missing) > 0 {
		return status.Errorf(codes.Unavailable, "the code of %d modules of app %s could not be fetched", len(missing), st.App)
	}
	return services.Sched.Copy(ctx, st)
}

// copied waits until the other partitions of a split app have the last changes in the
// primary one, even if partitions move meanwhile.
func (r *Router) copied(ctx context.Context, app string) error {
	if len(r.View.InvolvedPartitions(app)) < 2 {
		return nil
	}
	home, ok := r.View.PartitionOf(app)
	if !ok {
		return nil
	}
	var why error
	err := r.Repeat(ctx, func(err error) bool { return isRedirect(err) || isUnavailable(err) }, func(ctx context.Context) error {
		err := r.CopyOut(ctx, home, app)
		if why == nil || ctx.Err() == nil { // an error from the end of ctx explains nothing
			why = err
		}
		return err
	})
	if err != nil {
		return status.Errorf(codes.Unavailable, "the change is made, but not all partitions of app %s have it yet; they will get it: %s", app, status.Convert(why).Message())
	}
	return nil
}

// CopyOut lets the owner of an app's primary partition copy the app's state to its other
// partitions. It does not keep a partition from moving.
func (r *Router) CopyOut(ctx context.Context, home, app string) error {
	mine := false
	err := r.Call(ctx, home, app, func(*Services) error {
		mine = true
		return nil
	}, func(owner Owner) error {
		_, err := owner.CopyOut(ctx, &apiv1.CopyOutRequest{Unit: home, App: app})
		return err
	})
	if err != nil || !mine {
		return err
	}
	return r.Partitions[home].CopyOut(ctx, app)
}
