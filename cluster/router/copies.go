package router

import (
	"context"
	"slices"
	"time"

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
		return status.Errorf(codes.Unavailable, "the code of %d modules of app %s did not come", len(missing), st.App)
	}
	return services.Sched.Copy(ctx, st)
}

// copied waits until the other partitions of a split app have the last changes in the
// primary one, even if partitions move meanwhile.
func (r *Router) copied(ctx context.Context, app string) error {
	if len(r.View.Wishing(app)) < 2 {
		return nil
	}
	home, ok := r.View.PartitionOf(app)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	var why error
	for {
		changed := r.View.Change()
		err := r.CopyOut(ctx, home, app)
		if err == nil {
			return nil
		}
		if why == nil || ctx.Err() == nil { // an error from the end of ctx explains nothing
			why = err
		}
		if AddressIn(err) != "" || status.Code(err) == codes.Unavailable {
			select {
			case <-changed:
				continue
			case <-time.After(Patience / 100): // another server may learn of it earlier
				continue
			case <-ctx.Done():
			}
		}
		return status.Errorf(codes.Unavailable, "it is done, but not all partitions of app %s know of it yet, and they will: %s", app, status.Convert(why).Message())
	}
}

// CopyOut lets the owner of an app's primary partition copy the app's state to its other
// partitions. It does not keep a partition from moving.
func (r *Router) CopyOut(ctx context.Context, home, app string) error {
	services, err := r.Enter(ctx, home, app)
	if address := AddressIn(err); address != "" {
		conn, err := r.Peers.Conn(address)
		if err != nil {
			return err
		}
		_, err = apiv1.NewMembershipClient(conn).CopyOut(ctx, &apiv1.CopyOutRequest{Unit: home, App: app})
		return err
	}
	if err != nil {
		return err
	}
	services.Leave()
	return r.Partitions[home].CopyOut(ctx, app)
}
