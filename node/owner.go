package node

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// appsOf returns the apps that a request is about; none: it is about the server or the
// installation.
func appsOf(m any) []string {
	switch r := m.(type) {
	case *apiv1.ApplyJobRequest:
		return []string{r.GetJob().GetApp()}
	case *apiv1.PutCalendarRequest:
		return []string{r.GetCalendar().GetApp()}
	case *apiv1.PutGrantsRequest:
		return []string{r.GetGrants().GetApp()}
	case *apiv1.PushModuleRequest:
		if h := r.GetHead(); h != nil { // the messages after it belong to it
			return []string{h.GetApp()}
		}
		return nil
	case *apiv1.PutAppRequest:
		return []string{r.GetApp().GetName()}
	case *apiv1.GetAppRequest:
		return []string{r.GetName()}
	case *apiv1.ProduceRequest:
		var apps []string
		for _, c := range r.GetCommands() {
			switch k := c.GetKind().(type) {
			case *apiv1.Command_Apply:
				apps = append(apps, k.Apply.GetApp())
			case *apiv1.Command_Delete:
				apps = append(apps, k.Delete.GetApp())
			case *apiv1.Command_Trigger:
				apps = append(apps, k.Trigger.GetApp())
			}
		}
		return apps
	case interface{ GetApp() string }:
		return []string{r.GetApp()}
	}
	return nil
}

// elsewhere returns the error of a call about an app of another server. Programs find the
// assignment in its details.
func elsewhere(app string, a *apiv1.Assignment) error {
	s := status.Newf(codes.FailedPrecondition, "the app %s is on the server %s: use %s", app, a.GetServer(), a.GetAddress())
	if with, err := s.WithDetails(a); err == nil {
		s = with
	}
	return s.Err()
}
