-- LIKE, SIMILAR TO and regular expressions.
SELECT 'abc' LIKE 'abc', 'abc' LIKE 'a%', 'abc' LIKE '_b_', 'abc' LIKE 'c', 'abc' LIKE '%b%'
SELECT 'abc' NOT LIKE 'a%', 'abc' NOT LIKE 'x%'
SELECT 'ABC' LIKE 'abc', 'ABC' ILIKE 'abc', 'ABC' ILIKE 'a%'
SELECT 'a%c' LIKE 'a\%c', 'abc' LIKE 'a\%c', 'a_c' LIKE 'a\_c', 'abc' LIKE 'a\_c'
SELECT 'a%c' LIKE 'a#%c' ESCAPE '#', 'abc' LIKE 'a#%c' ESCAPE '#'
SELECT 'a\c' LIKE 'a\c' ESCAPE ''
SELECT 'a\c' LIKE 'a\\c'
-- refused 22025: patterns
SELECT 'abc' LIKE 'abc\'
SELECT '' LIKE '', '' LIKE '%', 'a' LIKE ''
SELECT E'a\nb' LIKE 'a%b', E'a\nb' LIKE 'a_b'
SELECT 'straße' LIKE 'stra_e', 'straße' LIKE '%ß%'
SELECT 'a.c' LIKE 'a.c', 'abc' LIKE 'a.c', 'a(c' LIKE 'a(c'
SELECT 'abc' ~~ 'a%', 'abc' !~~ 'a%', 'ABC' ~~* 'a%', 'ABC' !~~* 'a%'
SELECT 'abc' SIMILAR TO 'abc', 'abc' SIMILAR TO 'a%', 'abc' SIMILAR TO 'a', 'abc' SIMILAR TO '%(b|d)%', 'abc' SIMILAR TO '(b|c)%'
SELECT 'abc' NOT SIMILAR TO 'a%', 'abc' SIMILAR TO '_b_', 'abc' SIMILAR TO '[a-c]+', 'aab' SIMILAR TO 'a{2}b'
SELECT 'a.c' SIMILAR TO 'a.c', 'abc' SIMILAR TO 'a.c', 'a%c' SIMILAR TO 'a\%c', 'abc' SIMILAR TO 'a\%c'
SELECT 'a%c' SIMILAR TO 'a#%c' ESCAPE '#'
SELECT 'a$' SIMILAR TO 'a$', '^a' SIMILAR TO '^a', 'ab' SIMILAR TO 'a|b', 'a' SIMILAR TO 'a|b'
SELECT NULL SIMILAR TO 'a', 'a' SIMILAR TO NULL
SELECT 'abc' ~ 'b', 'abc' ~ '^b', 'abc' ~ 'c$', 'ABC' ~ 'b', 'ABC' ~* 'b', 'abc' !~ 'b', 'ABC' !~* 'b'
SELECT 'abc' ~ 'a.c', 'abc' ~ '[ab]+', 'a1' ~ '\d', 'a b' ~ '\s', 'ab' ~ '^(a|b)*$'
SELECT 'abc' ~ '('
-- refused 2201B: regular expressions
SELECT 'foo' ~ 'o{2}', 'foo' ~ '\mfoo\M'
SELECT '' ~ '', 'a' ~ ''
SELECT NULL ~ 'a', 'a' ~ NULL
SELECT id FROM shop.items WHERE name LIKE 'p%' ORDER BY id
SELECT id FROM shop.items WHERE name NOT LIKE 'p%' ORDER BY id
SELECT id FROM shop.items WHERE name ILIKE 'm%' ORDER BY id
SELECT id FROM shop.items WHERE name LIKE 'a\_b\%c' ORDER BY id
SELECT id FROM shop.items WHERE name LIKE '%\_%' ORDER BY id
SELECT id FROM shop.items WHERE name LIKE '_____' ORDER BY id
SELECT id FROM shop.items WHERE name LIKE '' ORDER BY id
SELECT id FROM shop.items WHERE name LIKE '%' ORDER BY id
SELECT id FROM shop.items WHERE name ~ '^p.*m$' ORDER BY id
SELECT id FROM shop.items WHERE name ~* '^MILK$' ORDER BY id
SELECT id FROM shop.items WHERE name SIMILAR TO '(apple|pear)' ORDER BY id
SELECT id FROM shop.items WHERE name SIMILAR TO 'p%' ORDER BY id
SELECT id FROM shop.items WHERE name LIKE 'x#_%' ESCAPE '#' ORDER BY id
SELECT p, 'a%c' LIKE p FROM (VALUES ('a\%c'), ('a%'), ('_')) AS v(p) ORDER BY p
-- refused 0A000: syntax
SELECT 'abc' LIKE ANY (ARRAY['x%', 'a%'])
-- refused 42883: syntax
SELECT 'abc' LIKE ALL (ARRAY['x%', 'a%'])
SELECT 'abc' ~ '('
SELECT name ~ '(' FROM shop.items
SELECT 'abc' ~ 'a{2,1}'
SELECT regexp_replace('a', '(', 'b')
SELECT 'a' ~* '['
-- regexp_replace and regexp_match: references, flags, places, empty matches, groups without a match.
SELECT regexp_replace('foobar', '(o)(b)', '\2\1'), regexp_replace('foobar', '(o)(b)', '$2$1'), regexp_replace('foobar', 'o', '$$')
SELECT regexp_replace('foobar', 'o', '\\'), regexp_replace('foobar', 'o+', '[\&]'), regexp_replace('foobar', 'o', '\0'), regexp_replace('foobar', 'o', '\x')
SELECT regexp_replace('foobar', '(o)|(b)', '<\1\2>', 'g'), regexp_replace('foobar', 'o', '\3'), regexp_replace('foobar', 'o', 'a\')
SELECT regexp_replace('foobar', '', '-'), regexp_replace('foobar', '', '-', 'g'), regexp_replace('abc', '(b|c)?', '-\1-', 'g')
SELECT regexp_replace(E'foo\nbar', 'o.b', 'x'), regexp_replace(E'foo\nbar', 'o$', 'x', 'n'), regexp_replace('fOo', 'o', 'x', 'gi')
SELECT regexp_replace('foobar', 'o', 'x', 3), regexp_replace('foobar', 'o', 'x', 1, 2), regexp_replace('foobar', 'O', 'x', 1, 0, 'i')
SELECT regexp_replace('foobar', 'o', 'x', 0)
SELECT regexp_replace('foobar', 'o', 'x', 'z')
SELECT regexp_replace('foobar', '(?<n>o)', 'x')
SELECT regexp_replace(name, 'p+', '<\&>', 'g'), regexp_replace(name, kind, '$1') FROM shop.items ORDER BY id
SELECT regexp_replace(NULL, 'o', 'x'), regexp_replace('a', NULL, 'x'), regexp_replace('a', 'a', NULL)
SELECT regexp_match('foobar', '(o)(x)?'), regexp_match('foobar', 'o+'), regexp_match('foobar', '(z)?f'), regexp_match('foobar', 'z')
SELECT regexp_match('foobar', 'o', 'g')
SELECT regexp_like(E'a\nb', 'a.b'), E'a\nb' ~ 'a.b', E'a\nb' ~ p FROM (VALUES ('a.b')) t(p)
-- differs longest match
-- gives: = regexp_replace text ; > xb
SELECT regexp_replace('ab', 'a|ab', 'x')
