package api

import (
	"google.golang.org/grpc"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// Register registers the server's gRPC services with r.
func (s *Services) Register(r grpc.ServiceRegistrar) {
	apiv1.RegisterJobsServer(r, &jobsAPI{s: s})
	apiv1.RegisterAppsServer(r, &appsAPI{s: s})
	apiv1.RegisterRevisionsServer(r, &revisionsAPI{s: s})
	apiv1.RegisterChangeSetsServer(r, &changeSetsAPI{s: s})
	apiv1.RegisterCalendarsServer(r, &calendarsAPI{s: s})
	apiv1.RegisterAlertsServer(r, &alertsAPI{s: s})
	apiv1.RegisterEventsServer(r, &eventsAPI{s: s})
	apiv1.RegisterRunsServer(r, &runsAPI{s: s})
	apiv1.RegisterModulesServer(r, &modulesAPI{s: s})
	apiv1.RegisterProducerServer(r, &producerAPI{s: s})
	apiv1.RegisterWorkerServer(r, &workerAPI{s: s})
	apiv1.RegisterGuestServer(r, &guestAPI{s: s})
	apiv1.RegisterValuesServer(r, &valuesAPI{s: s})
	apiv1.RegisterSecretsServer(r, &secretsAPI{s: s})
	apiv1.RegisterModuleAccessServer(r, &accessAPI{s: s})
	apiv1.RegisterAccessServer(r, &principalsAPI{s: s})
	apiv1.RegisterAuditServer(r, &auditAPI{s: s})
	apiv1.RegisterMachinesServer(r, &machinesAPI{s: s})
	apiv1.RegisterClusterServer(r, &clusterAPI{s: s})
}
