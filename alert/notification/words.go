package notification

import (
	"fmt"
	"strings"
)

// words are the built-in words of a language.
type words struct {
	states     map[State]string
	severities map[Severity]string
	events     map[string]string
	more       string // lines or incidents that were left out
	// The formats of titles.
	title  string // state, subject, event
	digest string // number of notifications
	times  string // number of incidents, after a title
	// The names of values.
	rule, app, severity, labels, since, ended, incidents, run, at, details, alerts string
	colon                                                                          string
}

var languages = map[Language]*words{
	English: {
		states:     map[State]string{Firing: "FIRING", Resolved: "RESOLVED"},
		severities: map[Severity]string{Critical: "critical", Error: "error", Warning: "warning", Info: "info"},
		events: map[string]string{
			"failed": "failed", "failed_in_row": "failed several times in a row", "retry_exhausted": "failed after the last retry",
			"timed_out": "timed out", "missed": "missed its time", "late_start": "started late", "not_finished_by": "has not finished in time",
			"no_success_since": "has had no success for too long", "running_longer_than": "runs for too long", "succeeded": "succeeded", "recovered": "recovered",
			"host_lost": "host lost", "canary_rolled_back": "canary rolled back", "dead_letter": "dead letter", "queue_age": "queue too old",
			"disk": "disk almost full", "certificate_expiry": "certificate expires", "limit_reached": "limit reached", "schedule_paused": "schedule paused",
		},
		more: "… and %d more", title: "[%s] %s: %s", digest: "%d notifications", times: "%s (%d times)",
		rule: "Rule", app: "App", severity: "Severity", labels: "Group", since: "Since", ended: "Ended", incidents: "Incidents", run: "run", at: "at",
		details: "Details", alerts: "Alerts", colon: ": ",
	},
	Chinese: {
		states:     map[State]string{Firing: "告警", Resolved: "已恢复"},
		severities: map[Severity]string{Critical: "严重", Error: "错误", Warning: "警告", Info: "提示"},
		events: map[string]string{
			"failed": "运行失败", "failed_in_row": "连续多次失败", "retry_exhausted": "重试用尽后仍失败",
			"timed_out": "运行超时", "missed": "错过计划时间", "late_start": "启动延迟", "not_finished_by": "未按时完成",
			"no_success_since": "长时间没有成功", "running_longer_than": "运行时间过长", "succeeded": "运行成功", "recovered": "已恢复正常",
			"host_lost": "主机失联", "canary_rolled_back": "灰度版本已回滚", "dead_letter": "出现死信", "queue_age": "队列积压过久",
			"disk": "磁盘空间不足", "certificate_expiry": "证书即将到期", "limit_reached": "达到上限", "schedule_paused": "调度已暂停",
		},
		more: "… 另有 %d 条", title: "[%s] %s：%s", digest: "%d 条通知", times: "%s（%d 次）",
		rule: "规则", app: "应用", severity: "级别", labels: "分组", since: "开始", ended: "结束", incidents: "事件", run: "运行", at: "时间",
		details: "详情", alerts: "告警", colon: "：",
	},
}

func wordsOf(l Language) *words {
	if w := languages[l]; w != nil {
		return w
	}
	return languages[English]
}

// event returns the words for the code of an event; for an unknown code, the code with
// spaces.
func (w *words) event(code string) string {
	if s, ok := w.events[code]; ok {
		return s
	}
	return strings.ReplaceAll(code, "_", " ")
}

func leftOut(l Language, n int) string { return fmt.Sprintf(wordsOf(l).more, n) }
