-- A dump in the form of mysqldump.
/*!40101 SET NAMES utf8mb4 */;
/*!40014 SET @OLD_UNIQUE_CHECKS=@@UNIQUE_CHECKS, UNIQUE_CHECKS=0 */;
DROP TABLE IF EXISTS `xxl_job_group`;
CREATE TABLE `xxl_job_group` (
  `id` int NOT NULL,
  `app_name` varchar(255),
  `name` varchar(255),
  `address_type` tinyint,
  `address_list` text,
  `access_token` varchar(255),
  `update_time` datetime,
  PRIMARY KEY (`id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;
LOCK TABLES `xxl_job_group` WRITE;
INSERT INTO `xxl_job_group` VALUES (1,'shop-executor','Shop',0,NULL,'t0ken','2024-01-01 00:00:00'),
(2,'billing','账单',1,'http://192.0.2.7:9999',NULL,'2024-01-01 00:00:00'),
(3,'名字','invalid name',0,NULL,NULL,'2024-01-01 00:00:00');
UNLOCK TABLES;
DROP TABLE IF EXISTS `xxl_job_info`;
CREATE TABLE `xxl_job_info` (
  `id` int NOT NULL,
  `job_group` int,
  `name` varchar(255),
  `add_time` datetime,
  `update_time` datetime,
  `author` varchar(255),
  `alarm_email` varchar(255),
  `schedule_type` varchar(255),
  `schedule_conf` varchar(255),
  `misfire_strategy` varchar(255),
  `executor_route_strategy` varchar(255),
  `executor_handler` varchar(255),
  `executor_param` text,
  `executor_block_strategy` varchar(255),
  `executor_timeout` int,
  `executor_fail_retry_count` int,
  `glue_type` varchar(255),
  `glue_source` mediumtext,
  `glue_remark` varchar(255),
  `glue_updatetime` datetime,
  `child_jobid` varchar(255),
  `trigger_status` tinyint,
  `trigger_last_time` bigint,
  `trigger_next_time` bigint,
  PRIMARY KEY (`id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;
LOCK TABLES `xxl_job_info` WRITE;
INSERT INTO `xxl_job_info` VALUES (1,2,'每日结算','2024-01-02 10:00:00','2024-02-01 10:00:00','李雷','ops@example.com','CRON','0 0 2 * * ?','FIRE_ONCE_NOW','LAST','handler1',NULL,'DISCARD_LATER',30,3,'BEAN','','note','2024-01-01 00:00:00','2',1,0,1796148000000),
(2,1,'nightly totals','2024-01-03 10:00:00','2024-02-01 10:00:00','','ops@example.com, bob@example.com','CRON','0 0/5 * * * ?','DO_NOTHING','ROUND','handler2','{"a":"it\'s","b":"c\\\\d"}','COVER_EARLY',5184000,150,'BEAN','','note','2024-01-01 00:00:00','3, 4',1,0,1796148180000),
(3,2,'订单同步 order sync','2024-01-04 10:00:00','2024-02-01 10:00:00',' spaced ','not an address','CRON','*/15 * * * * ?','FIRE_ONCE_NOW','RANDOM','handler3','line 1\nline 2	😀 <&>','SERIAL_EXECUTION',0,0,'BEAN','','note','2024-01-01 00:00:00','1',0,0,0),
(4,1,'emoji 😀 job','2024-01-05 10:00:00','2024-02-01 10:00:00','ann','','CRON','0 0 12 1 * ?','DO_NOTHING','CONSISTENT_HASH','handler4','','DISCARD_LATER',30,3,'BEAN','','note','2024-01-01 00:00:00','',1,0,0),
(5,2,'it\'s "quoted"','2024-01-06 10:00:00','2024-02-01 10:00:00','李雷','ops@example.com','CRON','0 15 10 ? * 6L','FIRE_ONCE_NOW','LEAST_FREQUENTLY_USED','handler5',NULL,'COVER_EARLY',5184000,150,'BEAN','','note','2024-01-01 00:00:00','5',1,0,0),
(6,1,'back\\slash \\n','2024-01-07 10:00:00','2024-02-01 10:00:00','','ops@example.com, bob@example.com','CRON','0 15 10 ? * 6#3','DO_NOTHING','LEAST_RECENTLY_USED','handler6','{"a":"it\'s","b":"c\\\\d"}','SERIAL_EXECUTION',0,0,'BEAN','','note','2024-01-01 00:00:00','999',0,0,0),
(7,2,'nightly totals','2024-01-08 10:00:00','2024-02-01 10:00:00',' spaced ','not an address','CRON','0 0 0 L * ?','FIRE_ONCE_NOW','FAILOVER','handler7','line 1\nline 2	😀 <&>','DISCARD_LATER',30,3,'BEAN','','note','2024-01-01 00:00:00','45',1,0,0),
(8,1,'a/b:c_d','2024-01-09 10:00:00','2024-02-01 10:00:00','ann','','CRON','0 0 0 LW * ?','DO_NOTHING','BUSYOVER','handler8','','COVER_EARLY',5184000,150,'BEAN','','note','2024-01-01 00:00:00','',1,0,0),
(9,3,'--dashes--','2024-01-01 10:00:00','2024-02-01 10:00:00','李雷','ops@example.com','CRON','0 0 9 15W * ?','FIRE_ONCE_NOW','SHARDING_BROADCAST','handler9',NULL,'SERIAL_EXECUTION',0,0,'BEAN','','note','2024-01-01 00:00:00','',0,0,0),
(10,1,'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx','2024-01-02 10:00:00','2024-02-01 10:00:00','','ops@example.com, bob@example.com','CRON','0 0 0 L-3 * ?','DO_NOTHING','FIRST','handler10','{"a":"it\'s","b":"c\\\\d"}','DISCARD_LATER',30,3,'BEAN','','note','2024-01-01 00:00:00','',1,0,0),
(11,2,'job 11','2024-01-03 10:00:00','2024-02-01 10:00:00',' spaced ','not an address','CRON','0 0 8 ? * MON-FRI','FIRE_ONCE_NOW','LAST','handler11','line 1\nline 2	😀 <&>','COVER_EARLY',5184000,150,'BEAN','','note','2024-01-01 00:00:00','',1,0,0),
(12,1,'任务12','2024-01-04 10:00:00','2024-02-01 10:00:00','ann','','CRON','0 0 8 ? * 2-6','DO_NOTHING','ROUND','handler12','','SERIAL_EXECUTION',0,0,'BEAN','','note','2024-01-01 00:00:00','',0,0,0),
(13,2,'job 13','2024-01-05 10:00:00','2024-02-01 10:00:00','李雷','ops@example.com','CRON','0 0 8 ? * 1','FIRE_ONCE_NOW','RANDOM','handler13',NULL,'DISCARD_LATER',30,3,'BEAN','','note','2024-01-01 00:00:00','',1,0,0),
(14,1,'job 14','2024-01-06 10:00:00','2024-02-01 10:00:00','','ops@example.com, bob@example.com','CRON','0 0 8 ? * SUN,SAT','DO_NOTHING','CONSISTENT_HASH','handler14','{"a":"it\'s","b":"c\\\\d"}','COVER_EARLY',5184000,150,'BEAN','','note','2024-01-01 00:00:00','',1,0,0),
(15,2,'job 15','2024-01-07 10:00:00','2024-02-01 10:00:00',' spaced ','not an address','CRON','0 0 22-2 * * ?','FIRE_ONCE_NOW','LEAST_FREQUENTLY_USED','handler15','line 1\nline 2	😀 <&>','SERIAL_EXECUTION',0,0,'BEAN','','note','2024-01-01 00:00:00','',0,0,0),
(16,1,'任务16','2024-01-08 10:00:00','2024-02-01 10:00:00','ann','','CRON','0 30 1 ? NOV-FEB FRI 2026-2030','DO_NOTHING','LEAST_RECENTLY_USED','handler16','','DISCARD_LATER',30,3,'BEAN','','note','2024-01-01 00:00:00','',1,0,0),
(17,2,'job 17','2024-01-09 10:00:00','2024-02-01 10:00:00','李雷','ops@example.com','CRON','0 0 0 29 2 ?','FIRE_ONCE_NOW','FAILOVER','handler17',NULL,'COVER_EARLY',5184000,150,'BEAN','','note','2024-01-01 00:00:00','',1,0,0),
(18,1,'job 18','2024-01-01 10:00:00','2024-02-01 10:00:00','','ops@example.com, bob@example.com','CRON','0 0 0 1 1 ? 2031','DO_NOTHING','BUSYOVER','handler18','{"a":"it\'s","b":"c\\\\d"}','SERIAL_EXECUTION',0,0,'BEAN','','note','2024-01-01 00:00:00','',0,0,0),
(19,2,'job 19','2024-01-02 10:00:00','2024-02-01 10:00:00',' spaced ','not an address','CRON','0 0 0 ? * L','FIRE_ONCE_NOW','SHARDING_BROADCAST','handler19','line 1\nline 2	😀 <&>','DISCARD_LATER',30,3,'BEAN','','note','2024-01-01 00:00:00','',1,0,0),
(20,1,'任务20','2024-01-03 10:00:00','2024-02-01 10:00:00','ann','','CRON','0 10,44 14 ? 3 WED','DO_NOTHING','FIRST','handler20','','COVER_EARLY',5184000,150,'BEAN','','note','2024-01-01 00:00:00','',1,0,0),
(21,2,'job 21','2024-01-04 10:00:00','2024-02-01 10:00:00','李雷','ops@example.com','CRON','0 0 12 1/5 * ?','FIRE_ONCE_NOW','LAST','handler21',NULL,'SERIAL_EXECUTION',0,0,'BEAN','','note','2024-01-01 00:00:00','',0,0,0),
(22,1,'job 22','2024-01-05 10:00:00','2024-02-01 10:00:00','','ops@example.com, bob@example.com','CRON','0 11 11 11 11 ?','DO_NOTHING','ROUND','handler22','{"a":"it\'s","b":"c\\\\d"}','DISCARD_LATER',30,3,'BEAN','','note','2024-01-01 00:00:00','',1,0,0),
(23,2,'job 23','2024-01-06 10:00:00','2024-02-01 10:00:00',' spaced ','not an address','CRON','59 59 23 31 12 ? 2026/2','FIRE_ONCE_NOW','RANDOM','handler23','line 1\nline 2	😀 <&>','COVER_EARLY',5184000,150,'BEAN','','note','2024-01-01 00:00:00','',1,0,0),
(24,1,'任务24','2024-01-07 10:00:00','2024-02-01 10:00:00','ann','','CRON','0 0 3 ? * mon','DO_NOTHING','CONSISTENT_HASH','handler24','','SERIAL_EXECUTION',0,0,'BEAN','','note','2024-01-01 00:00:00','',0,0,0),
(25,2,'job 25','2024-01-08 10:00:00','2024-02-01 10:00:00','李雷','ops@example.com','CRON','0 0 0 * * *','FIRE_ONCE_NOW','LEAST_FREQUENTLY_USED','handler25',NULL,'DISCARD_LATER',30,3,'BEAN','','note','2024-01-01 00:00:00','',1,0,0),
(26,1,'job 26','2024-01-09 10:00:00','2024-02-01 10:00:00','','ops@example.com, bob@example.com','CRON','0 0 2 * *','DO_NOTHING','LEAST_RECENTLY_USED','handler26','{"a":"it\'s","b":"c\\\\d"}','COVER_EARLY',5184000,150,'BEAN','','note','2024-01-01 00:00:00','',1,0,0),
(27,2,'job 27','2024-01-01 10:00:00','2024-02-01 10:00:00',' spaced ','not an address','CRON','every day','FIRE_ONCE_NOW','FAILOVER','handler27','line 1\nline 2	😀 <&>','SERIAL_EXECUTION',0,0,'BEAN','','note','2024-01-01 00:00:00','',0,0,0),
(28,1,'任务28','2024-01-02 10:00:00','2024-02-01 10:00:00','ann','','CRON','0 0 25 * * ?','DO_NOTHING','BUSYOVER','handler28','','DISCARD_LATER',30,3,'BEAN','','note','2024-01-01 00:00:00','',1,0,0),
(29,2,'job 29','2024-01-03 10:00:00','2024-02-01 10:00:00','李雷','ops@example.com','CRON','0 0 0 15 * 2','FIRE_ONCE_NOW','SHARDING_BROADCAST','handler29',NULL,'COVER_EARLY',5184000,150,'BEAN','','note','2024-01-01 00:00:00','',1,0,0),
(30,1,'job 30','2024-01-04 10:00:00','2024-02-01 10:00:00','','ops@example.com, bob@example.com','CRON','61 * * * * ?','DO_NOTHING','FIRST','handler30','{"a":"it\'s","b":"c\\\\d"}','SERIAL_EXECUTION',0,0,'BEAN','','note','2024-01-01 00:00:00','',0,0,0),
(31,2,'job 31','2024-01-05 10:00:00','2024-02-01 10:00:00',' spaced ','not an address','CRON','','FIRE_ONCE_NOW','LAST','handler31','line 1\nline 2	😀 <&>','DISCARD_LATER',30,3,'BEAN','','note','2024-01-01 00:00:00','',1,0,0),
(32,1,'任务32','2024-01-06 10:00:00','2024-02-01 10:00:00','ann','','FIX_RATE','30','DO_NOTHING','ROUND','handler32','','COVER_EARLY',5184000,150,'BEAN','','note','2024-01-01 00:00:00','',1,0,0),
(33,2,'job 33','2024-01-07 10:00:00','2024-02-01 10:00:00','李雷','ops@example.com','FIX_RATE','3600','FIRE_ONCE_NOW','RANDOM','handler33',NULL,'SERIAL_EXECUTION',0,0,'BEAN','','note','2024-01-01 00:00:00','',1,0,1796149020000),
(34,1,'job 34','2024-01-08 10:00:00','2024-02-01 10:00:00','','ops@example.com, bob@example.com','FIX_RATE','86400','DO_NOTHING','CONSISTENT_HASH','handler34','{"a":"it\'s","b":"c\\\\d"}','DISCARD_LATER',30,3,'BEAN','','note','2024-01-01 00:00:00','',1,0,0),
(35,2,'job 35','2024-01-09 10:00:00','2024-02-01 10:00:00',' spaced ','not an address','FIX_RATE','1','FIRE_ONCE_NOW','LEAST_FREQUENTLY_USED','handler35','line 1\nline 2	😀 <&>','COVER_EARLY',5184000,150,'BEAN','','note','2024-01-01 00:00:00','',1,0,0),
(36,1,'任务36','2024-01-01 10:00:00','2024-02-01 10:00:00','ann','','FIX_RATE','7','DO_NOTHING','LEAST_RECENTLY_USED','handler36','','SERIAL_EXECUTION',0,0,'BEAN','','note','2024-01-01 00:00:00','',0,0,0),
(37,2,'job 37','2024-01-02 10:00:00','2024-02-01 10:00:00','李雷','ops@example.com','FIX_RATE','soon','FIRE_ONCE_NOW','FAILOVER','handler37',NULL,'DISCARD_LATER',30,3,'BEAN','','note','2024-01-01 00:00:00','',1,0,0),
(38,1,'job 38','2024-01-03 10:00:00','2024-02-01 10:00:00','','ops@example.com, bob@example.com','FIX_DELAY','60','DO_NOTHING','BUSYOVER','handler38','{"a":"it\'s","b":"c\\\\d"}','COVER_EARLY',5184000,150,'BEAN','','note','2024-01-01 00:00:00','',1,0,0),
(39,2,'job 39','2024-01-04 10:00:00','2024-02-01 10:00:00',' spaced ','not an address','NONE','','FIRE_ONCE_NOW','SHARDING_BROADCAST','','line 1\nline 2	😀 <&>','SERIAL_EXECUTION',0,0,'GLUE_GROOVY','# source 39\nprint(\'it\\\'s\')\n','note','2024-01-01 00:00:00','',0,0,0),
(40,1,'任务40','2024-01-05 10:00:00','2024-02-01 10:00:00','ann','','NONE','','DO_NOTHING','FIRST','','','DISCARD_LATER',30,3,'GLUE_SHELL','# source 40\nprint(\'it\\\'s\')\n','note','2024-01-01 00:00:00','',1,0,0),
(41,2,'job 41','2024-01-06 10:00:00','2024-02-01 10:00:00','李雷','ops@example.com','NONE','','FIRE_ONCE_NOW','LAST','',NULL,'COVER_EARLY',5184000,150,'GLUE_PYTHON','# source 41\nprint(\'it\\\'s\')\n','note','2024-01-01 00:00:00','',1,0,0),
(42,1,'job 42','2024-01-07 10:00:00','2024-02-01 10:00:00','','ops@example.com, bob@example.com','NONE','','DO_NOTHING','ROUND','','{"a":"it\'s","b":"c\\\\d"}','SERIAL_EXECUTION',0,0,'GLUE_NODEJS','# source 42\nprint(\'it\\\'s\')\n','note','2024-01-01 00:00:00','',0,0,0),
(43,2,'job 43','2024-01-08 10:00:00','2024-02-01 10:00:00',' spaced ','not an address','NONE','','FIRE_ONCE_NOW','RANDOM','','line 1\nline 2	😀 <&>','DISCARD_LATER',30,3,'GLUE_POWERSHELL','# source 43\nprint(\'it\\\'s\')\n','note','2024-01-01 00:00:00','',1,0,0),
(44,1,'任务44','2024-01-09 10:00:00','2024-02-01 10:00:00','ann','','NONE','','DO_NOTHING','CONSISTENT_HASH','','','COVER_EARLY',5184000,150,'GLUE_PHP','# source 44\nprint(\'it\\\'s\')\n','note','2024-01-01 00:00:00','',1,0,0),
(45,2,'job 45','2024-01-01 10:00:00','2024-02-01 10:00:00','李雷','ops@example.com','NONE','','FIRE_ONCE_NOW','LEAST_FREQUENTLY_USED','handler45',NULL,'SERIAL_EXECUTION',0,0,'BEAN','','note','2024-01-01 00:00:00','',0,0,0),
(46,1,'job 46','2024-01-02 10:00:00','2024-02-01 10:00:00','','ops@example.com, bob@example.com','CRON','0 0 2 * * ?','DO_NOTHING','LEAST_RECENTLY_USED','handler46','{"a":"it\'s","b":"c\\\\d"}','DISCARD_LATER',30,3,'BEAN','','note','2024-01-01 00:00:00','',1,0,0),
(47,2,'job 47','2024-01-03 10:00:00','2024-02-01 10:00:00',' spaced ','not an address','CRON','0 0/5 * * * ?','FIRE_ONCE_NOW','FAILOVER','handler47','line 1\nline 2	😀 <&>','COVER_EARLY',5184000,150,'BEAN','','note','2024-01-01 00:00:00','',1,0,0),
(48,1,'任务48','2024-01-04 10:00:00','2024-02-01 10:00:00','ann','','CRON','*/15 * * * * ?','DO_NOTHING','BUSYOVER','handler48','','SERIAL_EXECUTION',0,0,'BEAN','','note','2024-01-01 00:00:00','',0,0,0),
(49,2,'job 49','2024-01-05 10:00:00','2024-02-01 10:00:00','李雷','ops@example.com','CRON','0 0 12 1 * ?','FIRE_ONCE_NOW','SHARDING_BROADCAST','handler49',NULL,'DISCARD_LATER',30,3,'BEAN','','note','2024-01-01 00:00:00','',1,0,0),
(50,1,'job 50','2024-01-06 10:00:00','2024-02-01 10:00:00','','ops@example.com, bob@example.com','CRON','0 15 10 ? * 6L','DO_NOTHING','FIRST','handler50','{"a":"it\'s","b":"c\\\\d"}','COVER_EARLY',5184000,150,'BEAN','','note','2024-01-01 00:00:00','',1,0,0),
(51,2,'job 51','2024-01-07 10:00:00','2024-02-01 10:00:00',' spaced ','not an address','CRON','0 15 10 ? * 6#3','FIRE_ONCE_NOW','LAST','handler51','line 1\nline 2	😀 <&>','SERIAL_EXECUTION',0,0,'BEAN','','note','2024-01-01 00:00:00','',0,0,0),
(52,1,'任务52','2024-01-08 10:00:00','2024-02-01 10:00:00','ann','','CRON','0 0 0 L * ?','DO_NOTHING','ROUND','handler52','','DISCARD_LATER',30,3,'BEAN','','note','2024-01-01 00:00:00','',1,0,0),
(53,2,'job 53','2024-01-09 10:00:00','2024-02-01 10:00:00','李雷','ops@example.com','CRON','0 0 0 LW * ?','FIRE_ONCE_NOW','RANDOM','handler53',NULL,'COVER_EARLY',5184000,150,'BEAN','','note','2024-01-01 00:00:00','',1,0,0);
UNLOCK TABLES;
DROP TABLE IF EXISTS `xxl_job_log`;
CREATE TABLE `xxl_job_log` (
  `id` bigint NOT NULL,
  `job_id` int,
  `trigger_msg` text,
  PRIMARY KEY (`id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;
LOCK TABLES `xxl_job_log` WRITE;
INSERT INTO `xxl_job_log` VALUES (1,1,'not needed; it\'s \\ long');
UNLOCK TABLES;
DROP TABLE IF EXISTS `xxl_job_user`;
CREATE TABLE `xxl_job_user` (
  `id` int NOT NULL,
  `username` varchar(255),
  `password` varchar(255),
  `token` varchar(255),
  `role` tinyint,
  `permission` varchar(255),
  PRIMARY KEY (`id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;
LOCK TABLES `xxl_job_user` WRITE;
INSERT INTO `xxl_job_user` VALUES (1,'admin','hash','',1,NULL),
(2,'lily','hash','',0,'1,2');
UNLOCK TABLES;
DELIMITER ;;
CREATE PROCEDURE p() BEGIN INSERT INTO xxl_job_info VALUES (1); END ;;
DELIMITER ;
