SELECT interval '1 day' = interval '24 hours', interval '1 mon' = interval '30 days', interval '1 mon' < interval '31 days'
SELECT v FROM (VALUES (interval '1 mon'), (interval '29 days'), (interval '31 days')) t(v) ORDER BY v
SELECT v FROM (VALUES (interval '1 mon'), (interval '29 days'), (interval '31 days')) t(v) ORDER BY v DESC
SELECT v, rank() OVER (ORDER BY v) FROM (VALUES (interval '1 day'), (interval '24 hours'), (interval '2 days')) t(v) ORDER BY v, v::text
SELECT v, count(*) OVER (PARTITION BY v) FROM (VALUES (interval '1 day'), (interval '24 hours'), (interval '2 days')) t(v) ORDER BY v, v::text
SELECT count(DISTINCT v) FROM (VALUES (interval '1 day'), (interval '24 hours'), (interval '2 days')) t(v)
SELECT interval '1 day' IN (interval '24 hours'), interval '1 day' IN (interval '25 hours')
SELECT interval '30 days' BETWEEN interval '1 mon' AND interval '1 mon'
SELECT CASE interval '1 day' WHEN interval '24 hours' THEN 'same' ELSE 'other' END
SELECT string_agg(n, ',' ORDER BY v) FROM (VALUES ('c', interval '31 days'), ('b', interval '1 mon'), ('a', interval '29 days')) t(n, v)
SELECT a.n, b.n FROM (VALUES ('a', interval '1 day')) a(n, v) JOIN (VALUES ('b', interval '24 hours')) b(n, v) ON a.v = b.v
SELECT a.n, b.n FROM (VALUES ('a', interval '1 day')) a(n, v) JOIN (VALUES ('b', interval '24 hours')) b(n, v) USING (v)
-- refused 0A000: intervals
SELECT max(v), min(v) FROM (VALUES (interval '1 mon'), (interval '29 days')) t(v)
-- refused 0A000: intervals
SELECT v, count(*) FROM (VALUES (interval '1 day'), (interval '24 hours')) t(v) GROUP BY v
-- refused 0A000: intervals
SELECT count(*) FROM (VALUES (interval '1 day'), (interval '24 hours')) t(v) GROUP BY ROLLUP (v)
-- refused 0A000: intervals
SELECT DISTINCT v FROM (VALUES (interval '1 day'), (interval '24 hours')) t(v)
-- refused 0A000: intervals
SELECT interval '1 day' UNION SELECT interval '24 hours'
-- refused 0A000: intervals
SELECT greatest(interval '1 mon', interval '29 days')
-- refused 0A000: intervals
SELECT 1 WHERE interval '1 day' IN (SELECT interval '24 hours')
-- refused 0A000: intervals
SELECT sum(v) FROM (VALUES (interval '1 day'), (interval '24 hours')) t(v)
-- refused 42883: interval products
SELECT v * 2 FROM (VALUES (interval '1 day 2 hours')) t(v)
