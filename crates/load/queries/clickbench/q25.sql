select SearchPhrase from hits where SearchPhrase <> '' order by EventTime limit 10;
