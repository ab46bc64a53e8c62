package queue

import "github.com/wheelworkhq/wheelwork/mq"

// VerifyLog reads all durable records of the queue's log and reports their state, like
// mq.Log.Verify. The queue continues to work. Close ends VerifyLog with ErrClosed.
// progress may be nil.
func (q *Queue) VerifyLog(progress mq.Progress) (mq.Report, error) {
	q.reading.RLock()
	defer q.reading.RUnlock()
	return q.log.Verify(func(done, total int64) error {
		select {
		case <-q.stopping:
			return ErrClosed
		default:
		}
		if progress == nil {
			return nil
		}
		return progress(done, total)
	})
}

// Err returns the failure that made the queue's log read-only, or nil.
func (q *Queue) Err() error { return q.log.Err() }
