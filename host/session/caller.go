package session

import apiv1 "github.com/wheelworkhq/wheelwork/api/v1"

// Caller returns the identity of an attempt that runs now, for calls to its server on its
// behalf. It returns false for any other attempt.
func (w *Worker) Caller(app string, run [16]byte, attempt int32) (*apiv1.Caller, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.held.get(key{app, run, attempt})
	if t == nil || t.state != running || t.msg == nil {
		return nil, false
	}
	return &apiv1.Caller{App: app, Run: run[:], Attempt: attempt, Epoch: t.msg.Epoch, Host: w.cfg.ID, Session: w.session}, true
}
