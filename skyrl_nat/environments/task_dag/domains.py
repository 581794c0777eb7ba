"""Work that requests are made of, by domain: `verb|two words` for each type. The two words are what is looked for."""

DOMAINS: dict[str, dict[str, tuple[str, ...]]] = {
    "software_release": {
        "research": ("look into|login crashes", "compare|packaging formats", "interview|pilot customers"),
        "design": ("sketch|upgrade screen", "draft|rollback procedure", "outline|plugin interface"),
        "make": ("repair|search index", "write|changelog entries", "code|export button"),
        "test": ("test|payment page", "measure|startup time", "check|keyboard shortcuts"),
        "review": ("review|licence list", "approve|security patch", "proofread|help texts"),
        "deliver": ("publish|download archive", "announce|release date", "send|support briefing"),
    },
    "data_pipeline": {
        "research": ("look into|missing rows", "compare|storage engines", "find out|column meanings"),
        "design": ("draft|table schema", "sketch|ingestion flow", "outline|retention policy"),
        "make": ("write|parser module", "build|nightly scheduler", "create|summary view"),
        "test": ("test|duplicate filter", "measure|query latency", "check|currency conversion"),
        "review": ("review|access rights", "approve|cost estimate", "inspect|alert thresholds"),
        "deliver": ("hand over|operator manual", "publish|sales dashboard", "send|quality report"),
    },
    "event": {
        "research": ("compare|concert halls", "interview|former guests", "find out|visitor interests"),
        "design": ("draft|evening programme", "sketch|stage layout", "outline|seating order"),
        "make": ("build|photo wall", "write|welcome speech", "prepare|name badges"),
        "test": ("test|sound system", "rehearse and check|opening act", "check|emergency exits"),
        "review": ("approve|catering menu", "review|insurance contract", "proofread|printed flyers"),
        "deliver": ("send|invitation cards", "announce|ticket sale", "hand out|parking permits"),
    },
    "research_report": {
        "research": ("look into|rainfall records", "interview|river fishermen", "compare|dam operators"),
        "design": ("draft|chapter structure", "outline|survey questions", "sketch|map legend"),
        "make": ("write|method section", "draw|flood chart", "compile|source appendix"),
        "test": ("check|statistical model", "test|sampling bias", "measure|sensor drift"),
        "review": ("review|ethics statement", "proofread|final abstract", "approve|author order"),
        "deliver": ("publish|open dataset", "present|key findings", "send|printed copies"),
    },
    "incident": {
        "research": ("look into|memory leak", "find out|affected accounts", "compare|server logs"),
        "design": ("draft|recovery steps", "outline|firewall rule", "sketch|failover route"),
        "make": ("write|hotfix branch", "restore|backup volume", "set up|spare router"),
        "test": ("test|restart script", "check|certificate chain", "measure|packet loss"),
        "review": ("review|event timeline", "approve|emergency change", "inspect|audit trail"),
        "deliver": ("send|status update", "publish|outage summary", "announce|maintenance window"),
    },
    "marketing": {
        "research": ("interview|loyal buyers", "compare|rival slogans", "look into|newsletter cancellations"),
        "design": ("sketch|poster motif", "draft|brand colours", "outline|video story"),
        "make": ("write|landing text", "film|product clip", "build|coupon page"),
        "test": ("test|banner variants", "measure|click rate", "check|mobile layout"),
        "review": ("review|budget split", "approve|celebrity quote", "proofread|billboard copy"),
        "deliver": ("launch|radio spot", "send|press kit", "publish|discount codes"),
    },
    "training_course": {
        "research": ("interview|new employees", "find out|skill gaps", "compare|learning platforms"),
        "design": ("outline|lesson sequence", "draft|grading scale", "sketch|exercise sheet"),
        "make": ("record|video lectures", "write|quiz questions", "build|practice sandbox"),
        "test": ("test|enrolment form", "check|subtitle timing", "measure|completion rate"),
        "review": ("review|teacher handbook", "approve|course fee", "proofread|glossary terms"),
        "deliver": ("announce|autumn term", "hand out|participant certificates", "send|welcome mail"),
    },
    "hiring": {
        "research": ("compare|salary bands", "find out|team workload", "look into|referral sources"),
        "design": ("draft|role profile", "outline|interview rounds", "sketch|onboarding week"),
        "make": ("write|job advert", "prepare|coding challenge", "set up|candidate tracker"),
        "test": ("check|reference letters", "test|video link", "measure|response times"),
        "review": ("review|shortlist notes", "approve|contract draft", "inspect|visa papers"),
        "deliver": ("send|offer letter", "announce|start date", "publish|vacancy post"),
    },
    "migration": {
        "research": ("look into|legacy macros", "compare|cloud regions", "find out|hidden consumers"),
        "design": ("draft|cutover calendar", "outline|network zones", "sketch|identity mapping"),
        "make": ("write|copy job", "build|staging cluster", "set up|mirror database"),
        "test": ("test|restore drill", "check|row totals", "measure|replication lag"),
        "review": ("review|risk register", "approve|downtime request", "inspect|encryption keys"),
        "deliver": ("announce|freeze period", "hand over|runbook binder", "switch on|production traffic"),
    },
    "office_move": {
        "research": ("compare|moving companies", "find out|desk wishes", "look into|lease clauses"),
        "design": ("draft|floor plan", "sketch|kitchen corner", "outline|packing schedule"),
        "make": ("build|partition walls", "set up|wireless access", "label|archive boxes"),
        "test": ("test|door alarms", "check|lift capacity", "measure|meeting noise"),
        "review": ("review|fire rules", "approve|furniture order", "inspect|water damage"),
        "deliver": ("announce|new address", "hand out|entry cards", "send|landlord notice"),
    },
}
"""Domain -> type -> work."""
HELD_OUT = ("migration", "office_move")
"""Domains that no training task is of."""
GOALS: dict[str, tuple[str, ...]] = {
    "software_release": ("Release version 4 of {0}", "Ship the spring update of {0}", "Bring {0} to the app store"),
    "data_pipeline": ("Feed the sales data of {0} into the warehouse", "Rebuild the reporting of {0}"),
    "event": ("Hold the anniversary of {0}", "Organise an open day at {0}", "Host the autumn gala of {0}"),
    "research_report": ("Report on the floods near {0}", "Study the water supply of {0}"),
    "incident": ("Bring {0} back after the outage", "Resolve the security alert at {0}"),
    "marketing": ("Promote the summer line of {0}", "Win new customers for {0}"),
    "training_course": ("Teach the staff of {0} data skills", "Start an evening class for {0}"),
    "hiring": ("Fill the vacant post at {0}", "Hire a second engineer for {0}"),
    "migration": ("Move {0} to the cloud", "Replace the old servers of {0}"),
    "office_move": ("Move {0} to a larger office", "Bring both branches of {0} under one roof"),
}
"""Domain -> what the whole is for; the place stands for a name."""
NAMES = (
    *("Orbit", "Harbour", "Linden", "Falcon", "Granite", "Meadow", "Juniper", "Compass", "Ember", "Northgate"),
    *("Willow", "Quarry", "Sparrow", "Beacon", "Tundra", "Saffron", "Riverton", "Cobalt", "Maple", "Halcyon"),
)
