-- Dates, times and intervals.
SELECT date '2024-01-31', date '0001-01-01', date '9999-12-31'
SELECT date '2024-01-31' + 1, date '2024-01-31' - 31, 1 + date '2024-02-28'
SELECT date '2024-03-01' - date '2024-02-01', date '2024-01-01' - date '2024-01-02'
SELECT date '2024-01-31' + interval '1 month', date '2023-01-31' + interval '1 month'
SELECT date '2024-01-31' + interval '1 day', date '2024-01-31' - interval '1 day'
SELECT timestamp '2024-01-31 10:00:00' + interval '1 day 02:30:00', timestamp '2024-01-31 10:00:00' - interval '1 year'
SELECT timestamp '2024-03-31 00:00:00' - interval '1 month', timestamp '2024-02-29 00:00:00' + interval '1 year'
SELECT timestamp '2024-01-31 10:00:00' - timestamp '2024-01-30 09:00:00'
SELECT timestamp '2024-01-01 00:00:00' - timestamp '2023-01-01 00:00:00'
SELECT timestamp '2024-01-31 10:00:00.25' - timestamp '2024-01-31 10:00:01'
SELECT date '2024-01-31' + time '10:30:00'
SELECT time '10:30:00' + interval '1 hour', time '23:30:00' + interval '1 hour'
SELECT time '10:30:00' - time '09:00:00'
SELECT interval '1 day', interval '1 month', interval '1 year 2 months 3 days 04:05:06', interval '90 minutes'
SELECT interval '1.5 days', interval '-1 day', interval '1 week', interval '1 day -2 hours'
SELECT interval '1' day, interval '2' hour
SELECT interval '1 day' + interval '2 hours', interval '1 day' - interval '1 hour'
-- refused 42883: interval products
SELECT interval '1 day' * 2, 2 * interval '1 hour', interval '1 day' * 1.5
-- refused 42883: interval products
SELECT interval '1 day' / 2
SELECT -interval '1 day'
SELECT interval '1 day' = interval '24 hours', interval '1 month' > interval '29 days', interval '1 month' = interval '30 days'
SELECT interval '0', interval '1 second', interval '0.5 seconds', interval '100 hours'
SELECT extract(year FROM date '2024-02-29'), extract(month FROM date '2024-02-29'), extract(day FROM date '2024-02-29')
SELECT extract(hour FROM timestamp '2024-01-31 10:20:30.5'), extract(minute FROM timestamp '2024-01-31 10:20:30.5')
SELECT extract(second FROM timestamp '2024-01-31 10:20:30.5')
SELECT extract(milliseconds FROM timestamp '2024-01-31 10:20:30.5'), extract(microseconds FROM timestamp '2024-01-31 10:20:30.5')
SELECT extract(dow FROM date '2024-02-25'), extract(isodow FROM date '2024-02-25'), extract(doy FROM date '2024-12-31')
SELECT extract(week FROM date '2024-12-30'), extract(isoyear FROM date '2024-12-30'), extract(quarter FROM date '2024-05-01')
SELECT extract(century FROM date '2024-01-01'), extract(decade FROM date '2024-01-01'), extract(millennium FROM date '2024-01-01')
SELECT extract(epoch FROM timestamp '2024-01-31 10:20:30.5'), extract(epoch FROM date '1970-01-02')
SELECT extract(epoch FROM timestamptz '2024-01-31 10:20:30+02')
SELECT extract(epoch FROM interval '1 day 01:00:00'), extract(day FROM interval '40 days'), extract(hour FROM interval '25:30:00')
SELECT extract(month FROM interval '14 months'), extract(year FROM interval '14 months')
SELECT extract(hour FROM time '10:20:30')
SELECT extract(julian FROM date '2024-01-01')
SELECT extract(nonsense FROM date '2024-01-01')
SELECT extract(hour FROM date '2024-01-01')
SELECT date_part('year', date '2024-02-29'), date_part('second', timestamp '2024-01-31 10:20:30.5'), date_part('dow', date '2024-02-25')
SELECT date_trunc('year', timestamp '2024-05-15 10:20:30'), date_trunc('month', timestamp '2024-05-15 10:20:30'), date_trunc('day', timestamp '2024-05-15 10:20:30')
SELECT date_trunc('hour', timestamp '2024-05-15 10:20:30'), date_trunc('minute', timestamp '2024-05-15 10:20:30'), date_trunc('second', timestamp '2024-05-15 10:20:30.9')
SELECT date_trunc('week', timestamp '2024-05-15 10:20:30'), date_trunc('quarter', timestamp '2024-05-15 10:20:30')
SELECT date_trunc('month', date '2024-05-15')
-- refused 0A000: units
SELECT date_trunc('decade', timestamp '2024-05-15 10:20:30'), date_trunc('century', timestamp '2024-05-15 10:20:30')
SELECT date_trunc('milliseconds', timestamp '2024-05-15 10:20:30.123456')
SELECT date_trunc('nonsense', timestamp '2024-05-15 10:20:30')
-- refused 42883: units
SELECT date_trunc('day', interval '1 day 10 hours')
SELECT date_trunc('month', timestamptz '2024-05-15 10:20:30+00')
SELECT date_bin('15 minutes', timestamp '2024-05-15 10:20:30', timestamp '2001-01-01')
-- refused 42883: functions
SELECT age(timestamp '2024-03-01', timestamp '2024-01-31'), age(timestamp '2024-01-01', timestamp '2023-12-31 23:00:00')
-- refused 42883: functions
SELECT age(date '2024-02-29', date '2000-02-29')
SELECT make_date(2024, 2, 29)
-- refused 22000: dates
SELECT make_date(2023, 2, 29)
-- refused 42883: functions
SELECT make_timestamp(2024, 2, 29, 10, 20, 30.5)
-- refused 42883: functions
SELECT make_interval(days => 10)
-- refused 42883: functions
SELECT make_time(8, 15, 23.5)
SELECT to_char(timestamp '2024-01-05 09:08:07.123', 'YYYY-MM-DD HH24:MI:SS'), to_char(timestamp '2024-01-05 09:08:07.123', 'DD Mon YYYY')
SELECT to_char(timestamp '2024-01-05 21:08:07.123', 'HH12:MI AM'), to_char(timestamp '2024-01-05 09:08:07.123', 'MS US')
SELECT to_char(date '2024-01-05', 'YYYY/MM/DD'), to_char(timestamp '2024-01-05', 'FMDD.FMMM.YY'), to_char(timestamp '2024-01-05', 'Dy IYYY-IW')
-- refused 42601: formats
SELECT to_char(timestamp '2024-01-05', 'Day|Month|')
SELECT to_char(timestamp '2024-01-05', 'YYYY "year"')
-- refused 42601: formats
SELECT to_char(timestamp '2024-01-05', 'Q')
SELECT date '2024-01-31' = timestamp '2024-01-31 00:00:00', date '2024-01-31' < timestamp '2024-01-31 00:00:01'
SELECT date '2024-01-31' BETWEEN '2024-01-01' AND '2024-02-01'
SELECT date '2024-01-31' > '2024-01-30'
SELECT greatest(date '2024-01-31', date '2024-02-01')
SELECT timestamp '2024-01-31 10:00:00.120', timestamp '2024-01-31 10:00:00.000001', timestamp '0001-01-01 00:00:00'
SELECT timestamp '2024-01-31 10:00:00'::date + 1
-- refused 0A000: precision
SELECT timestamp(0) '2024-01-31 10:00:00.5'
-- refused 0A000: precision
SELECT '2024-01-31 10:00:00.123456'::timestamp(3)
-- refused 42883: functions
SELECT isfinite(date '2024-01-31')
-- refused 22007: dates
SELECT date 'infinity'
-- refused 0A000: syntax
SELECT (date '2024-01-01', date '2024-01-10') OVERLAPS (date '2024-01-05', date '2024-01-20')
-- refused 42883: intervals
SELECT justify_days(interval '35 days'), justify_hours(interval '27 hours')
SELECT day, day + 1, day - date '2024-01-01' FROM shop.items WHERE id < 4 ORDER BY id
SELECT extract(year FROM day), extract(month FROM day) FROM shop.items WHERE id < 4 ORDER BY id
SELECT date_trunc('month', day) FROM shop.items WHERE id IN (1, 2) ORDER BY id
SELECT day + interval '1 month' FROM shop.items WHERE id = 1
SELECT id FROM shop.items WHERE day BETWEEN '2024-01-01' AND '2024-03-01' ORDER BY id
SELECT id FROM shop.items WHERE extract(month FROM day) = 12 ORDER BY id
SELECT min(day), max(day), max(day) - min(day) FROM shop.items
SELECT date_part('day', day) FROM shop.items WHERE id = 1
SELECT to_char(day, 'DD/MM/YYYY') FROM shop.items WHERE id = 1
SELECT extract(day FROM (at - timestamptz '2024-01-01 00:00:00+00')) FROM shop.items WHERE id = 1
SELECT at - timestamptz '2024-01-01 00:00:00+00' FROM shop.items WHERE id = 1
SELECT max(at) - min(at) FROM shop.items
SELECT d::date FROM generate_series(timestamp '2024-01-30', timestamp '2024-02-02', interval '1 day') AS g(d) ORDER BY 1
