package apiv1

// ErrorDomain is the domain of every google.rpc.ErrorInfo in the details of an error.
const ErrorDomain = "wheelwork"

// Reasons of a google.rpc.ErrorInfo: programs tell by them errors of one code apart.
const (
	// ReasonKeyReused says that an idempotency key stands for a run with another
	// input. HTTP answers 422.
	ReasonKeyReused = "IDEMPOTENCY_KEY_REUSED"
)
