package xxljob

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// Codes of answers and callbacks.
const (
	codeSuccess = 200
	codeFail    = 500
	codeTimeout = 502
)

// TokenHeader is the header with the access token, in both directions.
const TokenHeader = "XXL-JOB-ACCESS-TOKEN" //nolint:gosec // the name of a header

// Input is the input of a job whose handler is an executor.
type Input struct {
	Handler  string `json:"executorHandler"`
	Params   string `json:"executorParams"`
	Route    string `json:"executorRouteStrategy"`
	Block    string `json:"executorBlockStrategy"`
	Timeout  int64  `json:"executorTimeout"` // seconds; 0: none
	GlueType string `json:"glueType"`
}

// Strategies of an input.
const (
	routeFirst      = "FIRST"
	routeLast       = "LAST"
	routeRound      = "ROUND"
	routeRandom     = "RANDOM"
	routeHash       = "CONSISTENT_HASH"
	routeLeastUsed  = "LEAST_FREQUENTLY_USED"
	routeLeastRecen = "LEAST_RECENTLY_USED"
	routeFailover   = "FAILOVER"
	routeBusyover   = "BUSYOVER"
	routeBroadcast  = "SHARDING_BROADCAST"
	blockSerial     = "SERIAL_EXECUTION"
	blockDiscard    = "DISCARD_LATER"
	blockCover      = "COVER_EARLY"
	glueBean        = "BEAN"
)

var (
	routes = []string{
		routeFirst, routeLast, routeRound, routeRandom, routeHash, routeLeastUsed, routeLeastRecen,
		routeFailover, routeBusyover, routeBroadcast,
	}
	blocks = []string{blockSerial, blockDiscard, blockCover}
)

// maxTimeout bounds executorTimeout, in seconds: 366 days.
const maxTimeout = 366 * 24 * 3600

// parseInput reads the input of a run and fills in the defaults.
func parseInput(b []byte) (in Input, err error) {
	if err := json.Unmarshal(b, &in); err != nil {
		return in, fmt.Errorf("the input is not the JSON of an executor's job, such as {\"executorHandler\":\"demo\"}: %w", err)
	}
	in.Route, in.Block, in.GlueType = or(in.Route, routeFirst), or(in.Block, blockSerial), or(in.GlueType, glueBean)
	return in, in.check()
}

func (in Input) check() error {
	switch {
	case in.GlueType != glueBean:
		return fmt.Errorf("glueType %q: only BEAN is supported, because the bridge sends no code to executors: make the script a handler of the executor, or a module", in.GlueType)
	case in.Handler == "":
		return errors.New("executorHandler is empty: name the handler of the executor")
	case !slices.Contains(routes, in.Route):
		return fmt.Errorf("executorRouteStrategy %q: want one of %v", in.Route, routes)
	case !slices.Contains(blocks, in.Block):
		return fmt.Errorf("executorBlockStrategy %q: want one of %v", in.Block, blocks)
	case in.Timeout < 0 || in.Timeout > maxTimeout:
		return fmt.Errorf("executorTimeout %d: want 0 to %d seconds", in.Timeout, maxTimeout)
	}
	return nil
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// runRequest starts a handler of an executor.
type runRequest struct {
	JobID          int32  `json:"jobId"`
	Handler        string `json:"executorHandler"`
	Params         string `json:"executorParams"`
	Block          string `json:"executorBlockStrategy"`
	Timeout        int64  `json:"executorTimeout"`
	LogID          int64  `json:"logId"`
	LogDateTime    int64  `json:"logDateTime"`
	GlueType       string `json:"glueType"`
	GlueSource     string `json:"glueSource"`
	GlueUpdatetime int64  `json:"glueUpdatetime"`
	BroadcastIndex int    `json:"broadcastIndex"`
	BroadcastTotal int    `json:"broadcastTotal"`
}

// jobRequest is the request of idleBeat and kill.
type jobRequest struct {
	JobID int32 `json:"jobId"`
}

// logRequest reads a log from a line on, counted from 1. Executors differ in the spelling of
// the time.
type logRequest struct {
	LogDateTime int64 `json:"logDateTime"`
	LogDateTim  int64 `json:"logDateTim"`
	LogID       int64 `json:"logId"`
	From        int   `json:"fromLineNum"`
}

// logPage is the answer to a logRequest.
type logPage struct {
	From    int    `json:"fromLineNum"`
	To      int    `json:"toLineNum"`
	Content string `json:"logContent"`
	End     bool   `json:"isEnd"`
}

// answer is what both sides answer. Versions of XXL-JOB before 3.3 say content, later ones
// data.
type answer struct {
	Code    int             `json:"code"`
	Msg     any             `json:"msg"`
	Content json.RawMessage `json:"content,omitempty"`
	Data    json.RawMessage `json:"data,omitempty"`
}

func (a answer) text() string {
	switch m := a.Msg.(type) {
	case nil:
		return ""
	case string:
		return m
	default:
		return fmt.Sprint(m)
	}
}

// value decodes what the answer carries beside its code.
func (a answer) value(v any) error {
	b := a.Content
	if len(b) == 0 || bytes.Equal(b, []byte("null")) {
		b = a.Data
	}
	if len(b) == 0 {
		return errors.New("the answer has no content")
	}
	return json.Unmarshal(b, v)
}

// callback is the result of a request to run. Executors of versions before 2.3 send only
// executeResult.
type callback struct {
	LogID  int64  `json:"logId"`
	Code   int    `json:"handleCode"`
	Msg    string `json:"handleMsg"`
	Result *struct {
		Code int `json:"code"`
		Msg  any `json:"msg"`
	} `json:"executeResult"`
}

// parseCallbacks reads one callback or a list of them.
func parseCallbacks(b []byte) (list []callback, err error) {
	if b = bytes.TrimSpace(b); len(b) > 0 && b[0] == '{' {
		list = make([]callback, 1)
		err = json.Unmarshal(b, &list[0])
	} else {
		err = json.Unmarshal(b, &list)
	}
	for i, c := range list {
		if c.Code == 0 && c.Result != nil {
			list[i].Code, list[i].Msg = c.Result.Code, answer{Msg: c.Result.Msg}.text()
		}
	}
	return list, err
}

// registration is an executor that comes, stays or leaves.
type registration struct {
	Kind    string `json:"registryGroup"` // "EXECUTOR"
	Group   string `json:"registryKey"`   // its APPNAME
	Address string `json:"registryValue"`
}
