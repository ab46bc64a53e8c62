--
-- PostgreSQL database dump
--
\restrict abc
SET standard_conforming_strings = on;
CREATE FUNCTION public.f() RETURNS void LANGUAGE plpgsql AS $$ BEGIN INSERT INTO xxl_job_info VALUES (1); END $$;
CREATE TABLE public.xxl_job_group (
    id integer NOT NULL,
    app_name character varying(64) NOT NULL,
    name character varying(64)
);
COPY public.xxl_job_group (id, app_name, name) FROM stdin;
1	shop	C:\\shop\tTab
\.

COPY public.xxl_job_info (id, job_group, name, author, alarm_email, schedule_type, schedule_conf, misfire_strategy, executor_route_strategy, executor_handler, executor_param, executor_block_strategy, executor_timeout, executor_fail_retry_count, glue_type, glue_source, child_jobid, trigger_status, trigger_next_time) FROM stdin;
7	1	copy job	\N	\N	CRON	0 0 0 * * ?	DO_NOTHING	ROUND	h	a\\b\n'c'	SERIAL_EXECUTION	10	1	BEAN	\N	\N	1	0
\.

INSERT INTO public.xxl_job_info (id, job_group, name, schedule_type, executor_handler, executor_param, glue_type) VALUES (8, 1, 'insert \ job', 'NONE', 'h', E'a\tb ''c''', 'BEAN');
