-- Window functions and frames.
SELECT x, row_number() OVER (ORDER BY x) FROM (VALUES (3), (1), (2)) AS v(x) ORDER BY x
SELECT x, rank() OVER (ORDER BY x), dense_rank() OVER (ORDER BY x) FROM (VALUES (1), (1), (2)) AS v(x) ORDER BY x
SELECT x, percent_rank() OVER (ORDER BY x), cume_dist() OVER (ORDER BY x) FROM (VALUES (1), (2), (2), (4)) AS v(x) ORDER BY x
-- differs ntile
-- gives: = x int4|ntile int8 ; > 1|1 ; > 2|1 ; > 3|2
SELECT x, ntile(2) OVER (ORDER BY x) FROM (VALUES (1), (2), (3)) AS v(x) ORDER BY x
SELECT x, lag(x) OVER (ORDER BY x), lead(x) OVER (ORDER BY x) FROM (VALUES (1), (2), (3)) AS v(x) ORDER BY x
SELECT x, lag(x, 2) OVER (ORDER BY x), lag(x, 1, 0) OVER (ORDER BY x) FROM (VALUES (1), (2), (3)) AS v(x) ORDER BY x
SELECT x, first_value(x) OVER (ORDER BY x), last_value(x) OVER (ORDER BY x) FROM (VALUES (1), (2), (3)) AS v(x) ORDER BY x
SELECT x, last_value(x) OVER (ORDER BY x ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) FROM (VALUES (1), (2), (3)) AS v(x) ORDER BY x
SELECT x, nth_value(x, 2) OVER (ORDER BY x) FROM (VALUES (1), (2), (3)) AS v(x) ORDER BY x
SELECT x, sum(x) OVER (ORDER BY x) FROM (VALUES (1), (2), (2), (3)) AS v(x) ORDER BY x
SELECT x, sum(x) OVER () FROM (VALUES (1), (2), (3)) AS v(x) ORDER BY x
SELECT x, sum(x) OVER (ORDER BY x ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM (VALUES (1), (2), (3)) AS v(x) ORDER BY x
SELECT x, sum(x) OVER (ORDER BY x ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) FROM (VALUES (1), (2), (3)) AS v(x) ORDER BY x
SELECT x, sum(x) OVER (ORDER BY x ROWS BETWEEN 2 FOLLOWING AND 3 FOLLOWING) FROM (VALUES (1), (2), (3)) AS v(x) ORDER BY x
SELECT x, sum(x) OVER (ORDER BY x RANGE BETWEEN 1 PRECEDING AND CURRENT ROW) FROM (VALUES (1), (2), (4)) AS v(x) ORDER BY x
SELECT x, sum(x) OVER (ORDER BY x GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM (VALUES (1), (1), (2), (5)) AS v(x) ORDER BY x
SELECT x, count(*) OVER (ORDER BY x DESC ROWS UNBOUNDED PRECEDING) FROM (VALUES (1), (2), (3)) AS v(x) ORDER BY x
-- differs quotient
-- gives: = x int4|avg numeric ; > 1|1.0000000000000000 ; > 2|1.5000000000000000 ; > 4|3.0000000000000000
SELECT x, avg(x) OVER (ORDER BY x ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM (VALUES (1), (2), (4)) AS v(x) ORDER BY x
SELECT x, min(x) OVER (ORDER BY x ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING), max(x) OVER (ORDER BY x ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) FROM (VALUES (1), (3), (2)) AS v(x) ORDER BY x
SELECT x, sum(x) OVER (ORDER BY x ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM (VALUES (9223372036854775806::bigint), (9223372036854775807::bigint)) AS v(x) ORDER BY x
-- differs decimals
-- gives: = x numeric|sum numeric ; > 1.50|1.50 ; > 2.25|3.75
SELECT x, sum(x) OVER (ORDER BY x) FROM (VALUES (1.5), (2.25)) AS v(x) ORDER BY x
-- differs decimals
-- gives: = x numeric|sum float8 ; > 1.50|1.5 ; > 2.25|3.75
SELECT x, sum(x::float8) OVER (ORDER BY x) FROM (VALUES (1.5), (2.25)) AS v(x) ORDER BY x
SELECT id, kind, row_number() OVER (PARTITION BY kind ORDER BY id) FROM shop.items ORDER BY id
SELECT id, kind, count(*) OVER (PARTITION BY kind) FROM shop.items ORDER BY id
SELECT id, sum(qty) OVER (PARTITION BY kind ORDER BY id) FROM shop.items WHERE id < 6 ORDER BY id
SELECT id, sum(big) OVER (ORDER BY id) FROM shop.items WHERE id < 6 ORDER BY id
SELECT id, big, sum(big) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM shop.items WHERE id < 6 ORDER BY id
-- differs quotient
-- gives: = id int4|avg numeric ; > 1|1.2500000000000000 ; > 2|1.8750000000000000 ; > 3|1.6250000000000000
SELECT id, avg(price) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM shop.items WHERE id < 4 ORDER BY id
SELECT id, rank() OVER (ORDER BY kind NULLS FIRST), rank() OVER (ORDER BY kind DESC) FROM shop.items ORDER BY id
SELECT id, lag(name, 1, 'none') OVER (ORDER BY id) FROM shop.items WHERE id < 4 ORDER BY id
SELECT id, qty, rank() OVER (ORDER BY qty DESC NULLS LAST) FROM shop.items ORDER BY id
SELECT item, day, sum(amount) OVER (PARTITION BY item ORDER BY day) FROM shop.sales ORDER BY item, day
SELECT item, day, amount - lag(amount) OVER (PARTITION BY item ORDER BY day) FROM shop.sales ORDER BY item, day
SELECT item, day, sum(amount) OVER (PARTITION BY item ORDER BY day RANGE BETWEEN interval '1 day' PRECEDING AND CURRENT ROW) FROM shop.sales ORDER BY item, day
SELECT item, sum(sum(amount)) OVER (ORDER BY item) FROM shop.sales GROUP BY item ORDER BY item
SELECT x, sum(x) OVER w, count(*) OVER w FROM (VALUES (1), (2)) AS v(x) WINDOW w AS (ORDER BY x) ORDER BY x
SELECT x FROM (VALUES (1), (2)) AS v(x) WHERE row_number() OVER () = 1
SELECT y FROM (SELECT x AS y, row_number() OVER (ORDER BY x DESC) AS n FROM (VALUES (1), (2), (3)) AS v(x)) t WHERE n <= 2 ORDER BY y
SELECT x, sum(x) FILTER (WHERE x > 1) OVER (ORDER BY x) FROM (VALUES (1), (2), (3)) AS v(x) ORDER BY x
SELECT x, first_value(x) OVER (ORDER BY x DESC) FROM (VALUES (1), (NULL), (3)) AS v(x) ORDER BY x
SELECT x, string_agg(x, ',') OVER (ORDER BY x) FROM (VALUES ('a'), ('b')) AS v(x) ORDER BY x
SELECT x, array_agg(x) OVER (ORDER BY x) FROM (VALUES (1), (2)) AS v(x) ORDER BY x
SELECT ntile(0) OVER (ORDER BY x) FROM (VALUES (1)) AS v(x)
-- refused 42601: syntax
SELECT x, sum(x) OVER (ORDER BY x ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING EXCLUDE CURRENT ROW) FROM (VALUES (1), (2)) AS v(x) ORDER BY x
