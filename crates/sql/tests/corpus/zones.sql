-- Points in time and time zones. The session's zone is UTC unless a statement sets it.
SELECT timestamptz '2024-01-31 10:20:30+02', timestamptz '2024-01-31 10:20:30-05:30', timestamptz '2024-01-31 10:20:30Z'
SELECT timestamptz '2024-01-31 10:20:30'
SELECT timestamptz '2024-01-31 10:20:30.5+00', timestamptz '2024-01-31'
SELECT timestamptz '2024-01-31 10:20:30 Europe/Berlin'
SELECT timestamp '2024-01-31 10:20:30' AT TIME ZONE 'Europe/Berlin', timestamp '2024-07-31 10:20:30' AT TIME ZONE 'Europe/Berlin'
SELECT timestamptz '2024-01-31 10:20:30+00' AT TIME ZONE 'America/New_York', timestamptz '2024-07-31 10:20:30+00' AT TIME ZONE 'America/New_York'
SELECT timestamptz '2024-03-31 00:59:59+00' AT TIME ZONE 'Europe/Berlin', timestamptz '2024-03-31 01:00:00+00' AT TIME ZONE 'Europe/Berlin'
SELECT timestamptz '2024-10-27 00:59:59+00' AT TIME ZONE 'Europe/Berlin', timestamptz '2024-10-27 01:00:00+00' AT TIME ZONE 'Europe/Berlin'
SELECT timestamp '2024-03-31 02:30:00' AT TIME ZONE 'Europe/Berlin', timestamp '2024-10-27 02:30:00' AT TIME ZONE 'Europe/Berlin'
SELECT timestamptz '2024-01-31 10:20:30+00' AT TIME ZONE 'UTC', timestamp '2024-01-31 10:20:30' AT TIME ZONE 'UTC'
SELECT timestamptz '2024-01-31 10:20:30+00' AT TIME ZONE '+02', timestamptz '2024-01-31 10:20:30+00' AT TIME ZONE 'Asia/Kolkata'
SELECT timestamp '2024-01-31 10:20:30' AT TIME ZONE 'Nowhere/Town'
SELECT timezone('Europe/Berlin', timestamp '2024-01-31 10:20:30')
SELECT timestamptz '2024-01-31 10:20:30+02' = timestamptz '2024-01-31 08:20:30+00'
SELECT timestamptz '2024-01-31 10:20:30+00' > timestamp '2024-01-31 10:20:29'
SELECT timestamptz '2024-01-31 10:20:30+00' - timestamptz '2024-01-31 10:20:30+02'
SELECT timestamptz '2024-03-30 12:00:00+00' + interval '1 day', timestamptz '2024-01-31 12:00:00+00' + interval '1 month'
SELECT timestamptz '2024-01-31 10:20:30+00'::date, timestamptz '2024-01-31 23:59:59-01'::date
SELECT timestamptz '2024-01-31 10:20:30+00'::timestamp, timestamp '2024-01-31 10:20:30'::timestamptz
SELECT timestamptz '2024-01-31 10:20:30+00'::time
SELECT date '2024-01-31'::timestamptz
SELECT extract(hour FROM timestamptz '2024-01-31 10:20:30+02'), extract(hour FROM timestamptz '2024-01-31 10:20:30+00' AT TIME ZONE 'Asia/Tokyo')
-- refused 0A000: units
SELECT extract(timezone FROM timestamptz '2024-01-31 10:20:30+02')
-- refused 42883: units
SELECT date_trunc('day', timestamptz '2024-01-31 10:20:30+00', 'Europe/Berlin')
SELECT date_trunc('day', timestamptz '2024-01-31 23:30:00+00' AT TIME ZONE 'Europe/Berlin')
SELECT to_char(timestamptz '2024-01-31 10:20:30+00', 'YYYY-MM-DD HH24:MI')
SELECT to_timestamp(1706696430)
SELECT now() = current_timestamp, now() > timestamptz '2024-01-01 00:00:00+00'
SELECT current_date > date '2024-01-01'
SELECT at FROM shop.items ORDER BY id
SELECT at AT TIME ZONE 'Europe/Berlin' FROM shop.items WHERE id < 6 ORDER BY id
SELECT (at AT TIME ZONE 'Europe/Berlin')::date FROM shop.items WHERE id < 5 ORDER BY id
SELECT date_trunc('day', at) FROM shop.items WHERE id = 1
SELECT extract(hour FROM at) FROM shop.items WHERE id < 4 ORDER BY id
SELECT extract(epoch FROM at) FROM shop.items WHERE id IN (1, 6) ORDER BY id
SELECT id FROM shop.items WHERE at = '2024-02-29 13:00:00+01' ORDER BY id
SELECT id FROM shop.items WHERE at >= timestamptz '2024-01-01 00:00:00+00' AND at < timestamptz '2024-03-01 00:00:00+00' ORDER BY id
SELECT at::date FROM shop.items WHERE id = 1
SELECT at + interval '1 hour' FROM shop.items WHERE id = 1
SELECT to_char(at, 'HH24:MI') FROM shop.items WHERE id = 1
SELECT at::timestamp FROM shop.items WHERE id = 1
SELECT count(*), date_trunc('year', at) FROM shop.items WHERE at IS NOT NULL GROUP BY 2 ORDER BY 2
SET TIME ZONE 'Europe/Berlin'; SELECT timestamptz '2024-01-31 10:20:30+00', timestamptz '2024-07-31 10:20:30+00'
SET TIME ZONE 'Europe/Berlin'; SELECT timestamptz '2024-01-31 10:20:30', timestamptz '2024-07-31 10:20:30'
SET TIME ZONE 'Europe/Berlin'; SELECT '2024-01-31 10:20:30'::timestamp::timestamptz
SET TIME ZONE 'Europe/Berlin'; SELECT timestamptz '2024-01-31 23:30:00+00'::date, timestamptz '2024-01-31 23:30:00+00'::timestamp
SET TIME ZONE 'Europe/Berlin'; SELECT at FROM shop.items WHERE id IN (1, 3) ORDER BY id
SET TIME ZONE 'Europe/Berlin'; SELECT at::date, at::text FROM shop.items WHERE id = 1
SET TIME ZONE 'Europe/Berlin'; SELECT extract(hour FROM at) FROM shop.items WHERE id = 1
SET TIME ZONE 'Europe/Berlin'; SELECT date_trunc('day', at) FROM shop.items WHERE id = 1
SET TIME ZONE 'Europe/Berlin'; SELECT id FROM shop.items WHERE at < '2024-02-01' AND at > '2024-01-01' ORDER BY id
SET TIME ZONE 'Europe/Berlin'; SELECT to_char(at, 'YYYY-MM-DD HH24:MI') FROM shop.items WHERE id = 1
SET TIME ZONE 'Europe/Berlin'; SELECT date '2024-01-31'::timestamptz
SET TIME ZONE 'Europe/Berlin'; SELECT at + interval '1 day' FROM shop.items WHERE id = 3
SET TIME ZONE 'Europe/Berlin'; SELECT timestamptz '2024-03-30 12:00:00+01' + interval '1 day'
SET TIME ZONE 'Asia/Kolkata'; SELECT timestamptz '2024-01-31 10:20:30+00'
