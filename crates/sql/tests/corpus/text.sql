-- Texts: functions and their edges, concatenation, quoting.
SELECT 'abc', 'it''s', '', ' '
SELECT E'a\nb', E'tab\there', E'\\'
SELECT 'a\nb'
SELECT $$it's$$, $x$a$$b$x$
SELECT U&'d\0061t'
SELECT 'abc' || 'def', 'a' || 1, 1 || 'a', 'x' || 1.50
SELECT 'a' || NULL, NULL || 'a'
SELECT 'a' || true
SELECT concat('a', NULL, 'b'), concat(NULL), concat('a', 1, 2.5, true)
SELECT concat_ws(',', 'a', NULL, 'b'), concat_ws(NULL, 'a', 'b'), concat_ws(',', '', 'a')
SELECT length('abc'), length(''), length('straße'), length('日本語'), length(NULL)
SELECT char_length('straße'), character_length('日本'), octet_length('straße'), bit_length('abc')
SELECT upper('straße'), lower('ÄÖÜ'), upper('abc'), lower('ABC')
SELECT initcap('hello wORLD foo-bar')
SELECT substr('abcdef', 2), substr('abcdef', 2, 3), substr('abcdef', 0), substr('abcdef', 0, 2)
SELECT substr('abcdef', -1), substr('abcdef', -1, 3), substr('abcdef', -5, 3)
SELECT substr('abcdef', 10), substr('abcdef', 3, 0), substr('abcdef', 3, 100)
SELECT substr('abcdef', 3, -1)
SELECT substring('abcdef' FROM 2 FOR 3), substring('abcdef' FROM 2), substring('abcdef' FOR 3)
SELECT substring('abcdef', 2, 2)
SELECT substring('foobar' FROM 'o.b'), substring('foobar' FROM 'o(.)b'), substring('foobar' FROM 'x')
SELECT left('abcdef', 2), left('abcdef', -2), left('abc', 10), left('abc', 0), left('abc', -10)
SELECT right('abcdef', 2), right('abcdef', -2), right('abc', 10), right('abc', 0)
SELECT left('straße', 5), right('straße', 2)
SELECT position('b' IN 'abc'), position('x' IN 'abc'), position('' IN 'abc'), position('ß' IN 'straße')
SELECT strpos('abc', 'c'), strpos('abc', ''), strpos('straße', 'e')
SELECT split_part('a,b,c', ',', 1), split_part('a,b,c', ',', 3), split_part('a,b,c', ',', 4)
SELECT split_part('a,b,c', ',', -1), split_part('a,b,c', ',', -3), split_part('a,b,c', ',', -4)
SELECT split_part('a,b,c', ',', 0)
SELECT split_part('abc', '', 1), split_part('', ',', 1), split_part('a,b', ';', 1)
SELECT lpad('abc', 5), lpad('abc', 5, 'xy'), lpad('abc', 2), lpad('abc', 0), lpad('abc', -1), lpad('abc', 5, '')
SELECT rpad('abc', 5) || '|', rpad('abc', 5, 'xy'), rpad('abc', 2), rpad('abc', 0), rpad('abc', -1), rpad('abc', 5, '')
SELECT trim('  abc  '), ltrim('  abc'), rtrim('abc  ') || '|', btrim('xxabcxx', 'x')
SELECT trim(BOTH 'x' FROM 'xxabcxx'), trim(LEADING 'x' FROM 'xxabcxx'), trim(TRAILING 'x' FROM 'xxabcxx')
SELECT trim('xy' FROM 'xyabcyx'), ltrim('xyxabc', 'xy'), rtrim('abcxyx', 'yx')
SELECT trim(E'\t abc \n') = E'\t abc \n'
SELECT replace('abcabc', 'b', 'XX'), replace('abc', '', 'x'), replace('abc', 'abc', '')
SELECT translate('abcdef', 'ace', 'AC'), translate('12345', '143', 'ax')
SELECT reverse('abc'), reverse('straße'), reverse('')
SELECT repeat('ab', 3), repeat('ab', 0), repeat('ab', -1)
SELECT ascii('a'), ascii('ß'), ascii(''), chr(65), chr(223)
SELECT chr(0)
SELECT md5('abc')
SELECT overlay('abcdef' PLACING 'XX' FROM 3 FOR 2), overlay('abcdef' PLACING 'XX' FROM 3)
SELECT starts_with('abcdef', 'abc'), starts_with('abc', ''), starts_with('abc', 'abcd')
SELECT 'abc' ^@ 'ab'
SELECT quote_ident('a b'), quote_literal('a''b'), quote_literal(NULL), quote_nullable(NULL)
SELECT format('%s and %I and %L', 'a', 'b c', 'd''e')
SELECT to_hex(255), to_hex(-1)
SELECT encode('abc'::bytea, 'hex'), encode('abc'::bytea, 'base64')
SELECT decode('616263', 'hex')
SELECT '\x616263'::bytea, 'abc'::bytea
SELECT 'abc' < 'abd', 'abc' < 'ABC', 'a' < 'B', '' < 'a', 'a' < 'aa'
SELECT 'a' = 'a ', 'a' = 'A'
SELECT x FROM (VALUES ('b'), ('A'), ('a'), ('B'), (''), ('ä')) AS v(x) ORDER BY x
SELECT max(x), min(x) FROM (VALUES ('b'), ('A'), ('a')) AS v(x)
SELECT string_agg(x, ',' ORDER BY x) FROM (VALUES ('b'), ('a'), (NULL)) AS v(x)
SELECT string_agg(x, ',') FROM (VALUES (NULL::text)) AS v(x)
SELECT 'abc'::varchar(2), 'abcdef'::varchar(3), 'ab'::varchar(5), 'straße'::varchar(5)
SELECT 'abcd'::char(2), CAST('abcdef' AS varchar(3)), CAST('abc' AS character varying(2))
SELECT 'abcdef'::varchar, 'abc'::text, 'abc'::character varying
SELECT 'ab'::char(5) || '|'
SELECT 'a'::char(3) = 'a'
SELECT 123::varchar(2), 12345::text
SELECT name::varchar(3) FROM shop.items WHERE id < 4 ORDER BY id
SELECT length(name), upper(name), name || '!' FROM shop.items ORDER BY id
SELECT substr(name, 2, 3) FROM shop.items WHERE id IN (1, 6, 7) ORDER BY id
SELECT substr(name, qty, 2) FROM shop.items WHERE id IN (2, 3, 6) ORDER BY id
SELECT left(name, -1) FROM shop.items WHERE id IN (1, 6, 7) ORDER BY id
SELECT id FROM shop.items ORDER BY name, id
SELECT id FROM shop.items ORDER BY name DESC, id
SELECT name FROM shop.items WHERE name > 'b' ORDER BY name
SELECT lpad(name, 8, '*') FROM shop.items WHERE id < 3 ORDER BY id
SELECT concat(name, ':', price) FROM shop.items WHERE id < 3 ORDER BY id
SELECT regexp_replace('foobar', 'o', 'x'), regexp_replace('foobar', 'o', 'x', 'g'), regexp_replace('abc', '(b)', '[\1]')
SELECT regexp_replace('FooBar', 'o+b', 'x', 'i')
SELECT regexp_match('foobar', 'o(.)b'), regexp_match('foobar', 'x')
SELECT regexp_count('foobar', 'o'), regexp_like('abc', '^a')
SELECT regexp_split_to_array('a1b2c', '[0-9]')
SELECT string_to_array('a,b,,c', ','), string_to_array('', ','), string_to_array('a,b', NULL), string_to_array('a,b', ',', 'b')
SELECT array_to_string(ARRAY['a', NULL, 'b'], ','), array_to_string(ARRAY['a', NULL], ',', '*')
SELECT 'a'::text COLLATE "C" < 'b'
SELECT unistr('\0041')
SELECT normalize('a')
SELECT strpos(NULL, 'a'), replace('a', NULL, 'b'), left(NULL, 1)
SELECT to_char(125, '999'), to_number('12', '99')
SELECT ascii('日'), length(E'a\u0301')
SELECT 'abc' IS DISTINCT FROM 'abd', 'a' IS NOT DISTINCT FROM 'a'
SELECT greatest('a', 'b', NULL), least('b', 'a')
SELECT 'abc' LIKE NULL, NULL LIKE 'a'
