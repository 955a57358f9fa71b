//! Columns of `hits` and their distributions. Names and types are those of ClickBench's public
//! definition for databases without unsigned numbers. HitColor, a single character there, is text.

use super::{CellType, Column};

/// Value drawn for the row as a whole.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RowValue {
    Hit,
    User,
    Counter,
    Title,
    Url,
    Referer,
    Phrase,
    Engine,
    Model,
    Time { hours: i64 },
    Date,
    HashOf(&'static str),
}

/// Distribution of a column. The fields are, in order: thousandths of the rows, number of values,
/// power of the skew, lowest value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Draw {
    /// Value of the row as a whole.
    Of(RowValue),
    /// The same number in every row.
    Always(i64),
    /// 64 uniform bits.
    Anything,
    /// 1 in this many thousandths of the rows, otherwise 0.
    Flag(u64),
    Skewed(u64, u32, i64),
    /// Skewed in this many thousandths of the rows, otherwise 0.
    Seldom(u64, u64, u32, i64),
    /// The same in every row of a user.
    OfUser(u64, u32, i64),
    /// One of these texts in this many thousandths of the rows, otherwise empty. The first texts
    /// are the most frequent.
    OneOf(u64, &'static [&'static str]),
}

/// Primary key. The rows of a user share a partition, ordered by time. ClickBench orders by counter
/// and date first. As a CQL partition key, that would put a tenth of the table into one partition.
pub(crate) const KEY: &str = "(UserID), EventTime, WatchID";

const fn column(name: &'static str, kind: CellType) -> Column {
    Column { name, kind }
}

/// Columns of the table.
pub(crate) const COLUMNS: &[Column] = &[
    column("WatchID", CellType::Big),
    column("JavaEnable", CellType::Small),
    column("Title", CellType::Text),
    column("GoodEvent", CellType::Small),
    column("EventTime", CellType::Timestamp),
    column("EventDate", CellType::Date),
    column("CounterID", CellType::Int),
    column("ClientIP", CellType::Int),
    column("RegionID", CellType::Int),
    column("UserID", CellType::Big),
    column("CounterClass", CellType::Small),
    column("OS", CellType::Small),
    column("UserAgent", CellType::Small),
    column("URL", CellType::Text),
    column("Referer", CellType::Text),
    column("IsRefresh", CellType::Small),
    column("RefererCategoryID", CellType::Small),
    column("RefererRegionID", CellType::Int),
    column("URLCategoryID", CellType::Small),
    column("URLRegionID", CellType::Int),
    column("ResolutionWidth", CellType::Small),
    column("ResolutionHeight", CellType::Small),
    column("ResolutionDepth", CellType::Small),
    column("FlashMajor", CellType::Small),
    column("FlashMinor", CellType::Small),
    column("FlashMinor2", CellType::Text),
    column("NetMajor", CellType::Small),
    column("NetMinor", CellType::Small),
    column("UserAgentMajor", CellType::Small),
    column("UserAgentMinor", CellType::Text),
    column("CookieEnable", CellType::Small),
    column("JavascriptEnable", CellType::Small),
    column("IsMobile", CellType::Small),
    column("MobilePhone", CellType::Small),
    column("MobilePhoneModel", CellType::Text),
    column("Params", CellType::Text),
    column("IPNetworkID", CellType::Int),
    column("TraficSourceID", CellType::Small),
    column("SearchEngineID", CellType::Small),
    column("SearchPhrase", CellType::Text),
    column("AdvEngineID", CellType::Small),
    column("IsArtifical", CellType::Small),
    column("WindowClientWidth", CellType::Small),
    column("WindowClientHeight", CellType::Small),
    column("ClientTimeZone", CellType::Small),
    column("ClientEventTime", CellType::Timestamp),
    column("SilverlightVersion1", CellType::Small),
    column("SilverlightVersion2", CellType::Small),
    column("SilverlightVersion3", CellType::Int),
    column("SilverlightVersion4", CellType::Small),
    column("PageCharset", CellType::Text),
    column("CodeVersion", CellType::Int),
    column("IsLink", CellType::Small),
    column("IsDownload", CellType::Small),
    column("IsNotBounce", CellType::Small),
    column("FUniqID", CellType::Big),
    column("OriginalURL", CellType::Text),
    column("HID", CellType::Int),
    column("IsOldCounter", CellType::Small),
    column("IsEvent", CellType::Small),
    column("IsParameter", CellType::Small),
    column("DontCountHits", CellType::Small),
    column("WithHash", CellType::Small),
    column("HitColor", CellType::Text),
    column("LocalEventTime", CellType::Timestamp),
    column("Age", CellType::Small),
    column("Sex", CellType::Small),
    column("Income", CellType::Small),
    column("Interests", CellType::Small),
    column("Robotness", CellType::Small),
    column("RemoteIP", CellType::Int),
    column("WindowName", CellType::Int),
    column("OpenerName", CellType::Int),
    column("HistoryLength", CellType::Small),
    column("BrowserLanguage", CellType::Text),
    column("BrowserCountry", CellType::Text),
    column("SocialNetwork", CellType::Text),
    column("SocialAction", CellType::Text),
    column("HTTPError", CellType::Small),
    column("SendTiming", CellType::Int),
    column("DNSTiming", CellType::Int),
    column("ConnectTiming", CellType::Int),
    column("ResponseStartTiming", CellType::Int),
    column("ResponseEndTiming", CellType::Int),
    column("FetchTiming", CellType::Int),
    column("SocialSourceNetworkID", CellType::Small),
    column("SocialSourcePage", CellType::Text),
    column("ParamPrice", CellType::Big),
    column("ParamOrderID", CellType::Text),
    column("ParamCurrency", CellType::Text),
    column("ParamCurrencyID", CellType::Small),
    column("OpenstatServiceName", CellType::Text),
    column("OpenstatCampaignID", CellType::Text),
    column("OpenstatAdID", CellType::Text),
    column("OpenstatSourceID", CellType::Text),
    column("UTMSource", CellType::Text),
    column("UTMMedium", CellType::Text),
    column("UTMCampaign", CellType::Text),
    column("UTMContent", CellType::Text),
    column("UTMTerm", CellType::Text),
    column("FromTag", CellType::Text),
    column("HasGCLID", CellType::Small),
    column("RefererHash", CellType::Big),
    column("URLHash", CellType::Big),
    column("CLID", CellType::Int),
];

/// Distributions of the columns, in the order of [`COLUMNS`].
#[rustfmt::skip]
pub(crate) const DRAWS: &[Draw] = &[
    Draw::Of(RowValue::Hit),                                     // WatchID
    Draw::OfUser(2, 1, 0),                                       // JavaEnable
    Draw::Of(RowValue::Title),                                   // Title
    Draw::Always(1),                                             // GoodEvent
    Draw::Of(RowValue::Time { hours: 0 }),                       // EventTime
    Draw::Of(RowValue::Date),                                    // EventDate
    Draw::Of(RowValue::Counter),                                 // CounterID
    Draw::OfUser(1 << 32, 1, -(1 << 31)),                        // ClientIP
    Draw::OfUser(9000, 5, 1),                                    // RegionID
    Draw::Of(RowValue::User),                                    // UserID
    Draw::Skewed(3, 3, -1),                                      // CounterClass
    Draw::OfUser(90, 4, 1),                                      // OS
    Draw::OfUser(80, 3, 1),                                      // UserAgent
    Draw::Of(RowValue::Url),                                     // URL
    Draw::Of(RowValue::Referer),                                 // Referer
    Draw::Flag(110),                                             // IsRefresh
    Draw::Seldom(400, 20_000, 2, 1),                             // RefererCategoryID
    Draw::Seldom(400, 3000, 3, 1),                               // RefererRegionID
    Draw::Seldom(700, 20_000, 3, 1),                             // URLCategoryID
    Draw::Seldom(700, 3000, 3, 1),                               // URLRegionID
    Draw::OfUser(2000, 1, 500),                                  // ResolutionWidth
    Draw::OfUser(1000, 1, 400),                                  // ResolutionHeight
    Draw::OfUser(3, 4, 24),                                      // ResolutionDepth
    Draw::OfUser(12, 1, 0),                                      // FlashMajor
    Draw::OfUser(8, 2, 0),                                       // FlashMinor
    Draw::OneOf(700, &["700", "202", "180", "262", "257", "63", "110"]), // FlashMinor2
    Draw::OfUser(5, 3, 0),                                       // NetMajor
    Draw::OfUser(6, 3, 0),                                       // NetMinor
    Draw::OfUser(50, 2, 3),                                      // UserAgentMajor
    Draw::OneOf(900, &["D\u{fffd}", "0", "1", "5", "12", "44", "66"]), // UserAgentMinor
    Draw::Flag(985),                                             // CookieEnable
    Draw::Flag(995),                                             // JavascriptEnable
    Draw::Flag(60),                                              // IsMobile
    Draw::Seldom(55, 90, 3, 1),                                  // MobilePhone
    Draw::Of(RowValue::Model),                                   // MobilePhoneModel
    Draw::OneOf(20, &["{}", "{\"a\":1}", "{\"order\":\"new\"}"]), // Params
    Draw::OfUser(4_000_000, 2, 1),                               // IPNetworkID
    Draw::Skewed(12, 3, -1),                                     // TraficSourceID
    Draw::Of(RowValue::Engine),                                    // SearchEngineID
    Draw::Of(RowValue::Phrase),                                  // SearchPhrase
    Draw::Seldom(6, 18, 3, 2),                                   // AdvEngineID
    Draw::Flag(30),                                              // IsArtifical
    Draw::OfUser(1900, 1, 100),                                  // WindowClientWidth
    Draw::OfUser(1000, 1, 100),                                  // WindowClientHeight
    Draw::OfUser(14, 4, -2),                                     // ClientTimeZone
    Draw::Of(RowValue::Time { hours: 4 }),                       // ClientEventTime
    Draw::OfUser(6, 3, 0),                                       // SilverlightVersion1
    Draw::OfUser(2, 3, 0),                                       // SilverlightVersion2
    Draw::OfUser(60_000, 4, 0),                                  // SilverlightVersion3
    Draw::Always(0),                                             // SilverlightVersion4
    Draw::OneOf(950, &["windows", "utf-8", "windows-1251;charset", "koi8-r", "iso-8859-1"]), // PageCharset
    Draw::Skewed(1500, 4, 1),                                    // CodeVersion
    Draw::Flag(45),                                              // IsLink
    Draw::Flag(2),                                               // IsDownload
    Draw::Flag(20),                                              // IsNotBounce
    Draw::OfUser(1 << 62, 1, 1),                                 // FUniqID
    Draw::OneOf(60, &["http://example/from", "http://example/old", "http://example/moved/here"]), // OriginalURL
    Draw::Anything,                                              // HID
    Draw::Always(0),                                             // IsOldCounter
    Draw::Flag(40),                                              // IsEvent
    Draw::Flag(20),                                              // IsParameter
    Draw::Flag(45),                                              // DontCountHits
    Draw::Flag(25),                                              // WithHash
    Draw::OneOf(1000, &["5", "T", "g", "1", "0"]),               // HitColor
    Draw::Of(RowValue::Time { hours: 3 }),                       // LocalEventTime
    Draw::OfUser(56, 3, 0),                                      // Age
    Draw::OfUser(3, 2, 0),                                       // Sex
    Draw::OfUser(5, 3, 0),                                       // Income
    Draw::OfUser(30_000, 4, 0),                                  // Interests
    Draw::OfUser(60, 6, 0),                                      // Robotness
    Draw::OfUser(1 << 32, 1, -(1 << 31)),                        // RemoteIP
    Draw::Seldom(600, 5000, 3, -1),                              // WindowName
    Draw::Seldom(600, 5000, 3, -1),                              // OpenerName
    Draw::Skewed(50, 4, -1),                                     // HistoryLength
    Draw::OneOf(990, &["S0", "en", "de", "fr", "tr"]),           // BrowserLanguage
    Draw::OneOf(990, &["h1", "US", "DE", "FR", "TR"]),           // BrowserCountry
    Draw::OneOf(2, &["first", "second", "third"]),               // SocialNetwork
    Draw::OneOf(2, &["like", "share", "open"]),                  // SocialAction
    Draw::Seldom(3, 100, 2, 400),                                // HTTPError
    Draw::Skewed(5000, 8, 0),                                    // SendTiming
    Draw::Skewed(1000, 8, 0),                                    // DNSTiming
    Draw::Skewed(2000, 6, 0),                                    // ConnectTiming
    Draw::Skewed(5000, 5, 0),                                    // ResponseStartTiming
    Draw::Skewed(10_000, 5, 0),                                  // ResponseEndTiming
    Draw::Skewed(20_000, 5, 0),                                  // FetchTiming
    Draw::Seldom(5, 6, 2, 1),                                    // SocialSourceNetworkID
    Draw::OneOf(5, &["http://social.example/a", "http://social.example/b"]), // SocialSourcePage
    Draw::Seldom(4, 1_000_000, 3, 1),                            // ParamPrice
    Draw::OneOf(2, &["order1", "order2", "order3"]),             // ParamOrderID
    Draw::OneOf(1000, &["NH", "EU", "US"]),                      // ParamCurrency
    Draw::Seldom(10, 3, 2, 1),                                   // ParamCurrencyID
    Draw::OneOf(9, &["direct", "market", "metrika", "spring"]),  // OpenstatServiceName
    Draw::OneOf(9, &["direct", "market", "metrika", "spring"]),  // OpenstatCampaignID
    Draw::OneOf(9, &["direct", "market", "metrika", "spring"]),  // OpenstatAdID
    Draw::OneOf(9, &["direct", "market", "metrika", "spring"]),  // OpenstatSourceID
    Draw::OneOf(35, &["direct", "market", "metrika", "spring"]), // UTMSource
    Draw::OneOf(35, &["direct", "market", "metrika", "spring"]), // UTMMedium
    Draw::OneOf(35, &["direct", "market", "metrika", "spring"]), // UTMCampaign
    Draw::OneOf(12, &["direct", "market", "metrika", "spring"]), // UTMContent
    Draw::OneOf(12, &["direct", "market", "metrika", "spring"]), // UTMTerm
    Draw::OneOf(10, &["direct", "market", "metrika", "spring"]), // FromTag
    Draw::Flag(6),                                               // HasGCLID
    Draw::Of(RowValue::HashOf("referer")),                       // RefererHash
    Draw::Of(RowValue::HashOf("url")),                           // URLHash
    Draw::Seldom(20, 200, 3, 1),                                 // CLID
];

/// Phone models.
pub(crate) const MODELS: &[&str] = &[
    "iPad",
    "iPhone",
    "A500",
    "N8-00",
    "GT-I9100",
    "Galaxy",
    "E63",
    "Lumia 800",
    "Nexus 7",
    "Desire HD",
    "Xperia Z",
    "One X",
    "C5",
    "Asha 311",
    "Wildfire S",
    "Razr",
    "ZTE V880",
    "Optimus L5",
    "Bold 9900",
    "5230",
];

/// Words of titles, addresses and phrases.
pub(crate) const WORDS: &[&str] = &[
    "about",
    "account",
    "again",
    "album",
    "always",
    "among",
    "animal",
    "answer",
    "apple",
    "april",
    "arrive",
    "article",
    "autumn",
    "baby",
    "bank",
    "bath",
    "beach",
    "bed",
    "best",
    "bicycle",
    "bird",
    "black",
    "blue",
    "boat",
    "book",
    "border",
    "bread",
    "bridge",
    "bring",
    "brother",
    "build",
    "bus",
    "buy",
    "cake",
    "call",
    "camera",
    "car",
    "card",
    "castle",
    "cat",
    "chair",
    "cheap",
    "child",
    "choose",
    "city",
    "class",
    "clean",
    "clear",
    "clock",
    "cloud",
    "coat",
    "coffee",
    "cold",
    "colour",
    "compare",
    "cook",
    "corner",
    "country",
    "cover",
    "credit",
    "cup",
    "daily",
    "dance",
    "day",
    "deal",
    "dinner",
    "doctor",
    "dog",
    "door",
    "download",
    "dress",
    "drive",
    "early",
    "east",
    "easy",
    "email",
    "engine",
    "evening",
    "family",
    "fast",
    "film",
    "find",
    "fire",
    "fish",
    "flat",
    "flight",
    "flower",
    "food",
    "football",
    "forest",
    "forum",
    "free",
    "friend",
    "fruit",
    "game",
    "garden",
    "gift",
    "girl",
    "glass",
    "gold",
    "grass",
    "green",
    "guide",
    "hair",
    "hand",
    "happy",
    "health",
    "help",
    "high",
    "holiday",
    "home",
    "horse",
    "hospital",
    "hotel",
    "house",
    "idea",
    "island",
    "job",
    "kitchen",
    "lake",
    "lamp",
    "language",
    "large",
    "late",
    "learn",
    "letter",
    "light",
    "list",
    "little",
    "live",
    "long",
    "love",
    "lunch",
    "machine",
    "map",
    "market",
    "meat",
    "mirror",
    "mobile",
    "money",
    "month",
    "moon",
    "morning",
    "mother",
    "mountain",
    "movie",
    "museum",
    "music",
    "name",
    "near",
    "news",
    "night",
    "north",
    "number",
    "office",
    "online",
    "open",
    "orange",
    "order",
    "page",
    "paint",
    "paper",
    "park",
    "party",
    "phone",
    "photo",
    "picture",
    "pizza",
    "plan",
    "plant",
    "play",
    "pool",
    "price",
    "print",
    "product",
    "quick",
    "quiet",
    "radio",
    "rain",
    "recipe",
    "red",
    "rent",
    "repair",
    "rest",
    "review",
    "ring",
    "river",
    "road",
    "room",
    "rose",
    "sale",
    "school",
    "sea",
    "search",
    "season",
    "secret",
    "shop",
    "short",
    "show",
    "silver",
    "sister",
    "size",
    "sky",
    "sleep",
    "small",
    "snow",
    "song",
    "south",
    "spring",
    "star",
    "station",
    "stone",
    "store",
    "story",
    "street",
    "sugar",
    "summer",
    "sun",
    "table",
    "taxi",
    "tea",
    "teacher",
    "telephone",
    "theatre",
    "ticket",
    "time",
    "today",
    "toy",
    "trade",
    "train",
    "travel",
    "tree",
    "uncle",
    "update",
    "used",
    "video",
    "village",
    "visit",
    "voice",
    "wait",
    "walk",
    "wall",
    "warm",
    "watch",
    "water",
    "weather",
    "web",
    "week",
    "west",
    "white",
    "wind",
    "window",
    "winter",
    "woman",
    "wood",
    "word",
    "work",
    "world",
    "write",
    "yellow",
    "young",
];
