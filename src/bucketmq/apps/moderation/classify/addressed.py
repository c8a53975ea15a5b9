"""Does a post speak to its judge? Rules, because a model that was talked over cannot be asked. Pure.

Posts are written for other people. One that gives orders to a moderator, brings its own verdict, or imitates the lines
of a system is odd whatever it says: the answer of a language model about it is worth nothing by itself, and a person
looks. The rules read the text as `normalise.plain` shows it, what was hidden or encoded in it included, and the media
URL, percent-decoded. They can only raise a doubt, never lower a score, so what they overlook is judged like any other
post, and what they mistake costs a reviewer a glance.
"""

from __future__ import annotations

import functools
import unicodedata
from typing import Any
from urllib.parse import unquote_plus

import re2  # type: ignore[import-untyped]

from bucketmq.apps.moderation.classify.normalise import ENCODED, HIDDEN, OVERRIDES, TAGS, plain
from bucketmq.apps.moderation.record import CATEGORIES, Post

CHARS_MAX = 100_000
"""How much of a text is looked at; a classifier that takes more has doubts of its own."""

_JUDGE = (
    r"(?:moderators?|moderation|content filters?|classifiers?|reviewers?|ai|a\.i\.|llm|language model|claude|gpt|"
    r"chatgpt|"
    r"assistant|automod|judge|safety (?:system|team|model|filter)|trust (?:and|&) safety)"
)
_RULES = (
    r"(?:instructions?|prompts?|rules|guidelines|polic(?:y|ies)|directives?|orders|constraints|system message|"
    r"safety (?:checks?|settings|filters?)|content (?:checks?|filters?)|moderation)"
)
_FINE = (
    r"(?:safe|clean|harmless|benign|approved?|pre-?approved|allowed|compliant|acceptable|appropriate|cleared|exempt|"
    r"whitelisted|allowlisted|not flagged|unflagged|no violations?|not a violation|not violating|non-?violating)"
)
_POST = (
    r"(?:posts?|content|text|messages?|comments?|images?|submissions?|documents?|items?|examples?|following|above|it|"
    r"this)"
)

_ORDERS = (
    # Take back what was said before.
    rf"\b(?:ignore|disregard|forget|override|bypass|discard|drop|skip|cancel|void|replace|overrule|supersedes?)\b"
    rf".{{0,40}}\b{_RULES}\b",
    r"\b(?:ignore|disregard|forget)\b.{0,40}\b(?:previous|prior|above|earlier|preceding|foregoing|before this|"
    r"so far)\b",
    r"\b(?:do not|don'?t|stop|no longer|never)\b.{0,12}\b(?:follow|apply|obey|enforce|use)(?:ing)?\b.{0,30}"
    rf"\b{_RULES}\b",
    r"\b(?:do not|don'?t|stop|no longer|never)\b.{0,12}\b(?:flag|classify|judge|moderate|report)(?:ing)?\b.{0,30}"
    rf"\b{_POST}\b",
    r"\bnew (?:instructions?|rules?|task|directive|system prompt|objective)\b.{0,4}[:.-]",
    # Take another role.
    r"\b(?:you are|you're|you will be|act as|behave as|respond as|roleplay as|role-play as|pretend (?:to be|"
    r"you are|that you)|"
    r"play the (?:part|role) of|imagine (?:that )?you are|simulate)\b.{0,50}"
    r"\b(?:moderators?|classifiers?|assistant|ai|model|chatbot|bot|filter|system|judge|unrestricted|dan|reviewer|"
    r"grader)\b",
    r"\b(?:developer|debug|admin|maintenance|god|jailbreak|unrestricted|dan|sudo|training|evaluation|calibration|"
    r"test|override)"
    r" mode\b",
    r"\b(?:in (?:this|our) (?:game|story|role ?play|play|scene|exercise)|let'?s play a game)\b.{0,80}"
    rf"\b(?:{_JUDGE}|answers?|replies|{_FINE})\b",
    # Speak to the judge.
    rf"\b(?:dear|hey|hi|hello|attention|note (?:to|for)|message (?:to|for)|memo (?:to|for)|ps to|to the|as an?|"
    rf"as the|you,? the)"
    rf"\b.{{0,16}}\b{_JUDGE}\b",
    r"\b(?:system|developer|moderators?|moderation|admin(?:istrator)?|reviewers?|assistant|tool|operator|"
    r"supervisor|safety|"
    r"compliance|policy|staff|anthropic|openai|internal) "
    r"(?:notes?|messages?|prompts?|notice|override|instructions?|results?|responses?|outputs?|decision|"
    r"directive|team|"
    r"alert|policy|approval|clearance|bulletin|memo)\b",
    r"\b(?:tool|function|api|scanner|classifier|moderation|policy|safety)[ _-]?(?:results?|returned|says|"
    r"response|output|verdict|"
    r"check|scan)\b",
    # Bring the verdict along.
    rf"\b{_POST}\b.{{0,12}}\b(?:is|are|was|were|has been|have been|had been|should be|must be|can be|counts as|"
    rf"got)\b.{{0,30}}"
    rf"\b(?:approved|pre-?approved|cleared|whitelisted|allowlisted|exempt|not a violation|verified safe|marked safe|"
    rf"safe to (?:post|publish|approve)|reviewed|already (?:checked|moderated|reviewed))\b",
    rf"\b(?:answer|respond|reply|return|output|print|classify|label|mark|rate|score|report|rule|conclude|decide|"
    rf"tell them|treat|consider|judge|approve|set|emit|produce|predict)\b[^.?!]{{0,40}}\b{_FINE}\b",
    r"\b(?:answer|respond|reply|return|output|print|emit|produce|repeat|copy|complete)\b.{0,30}"
    r"\b(?:json|verdict|the word|only|exactly|verbatim|with zeros?|all zeros?|false)\b",
    r"\b(?:all|every|each) (?:categor(?:y|ies)|scores?|confidences?|flags?|labels?)\b",
    r"\b(?:confidence|probability|score)s? (?:of |is |to |at |= ?)?(?:zero|0(?:\.0+)?)\b",
    r"\b(?:please|kindly|must|should|just|you can|can you|simply|urgent(?:ly)?|"
    r"immediately)\b.{0,20}\b(?:approve|unflag|whitelist|(?:allow|clear) (?:it|this)|let (?:it|this) through)\b",
    r"\b(?:approve|allow|unflag|whitelist|publish) (?:this|the) (?:post|content|text|message|comment|image|"
    r"submission)\b",
    r"\b(?:decode|decrypt|base64|rot13)\b.{0,40}\b(?:follow|obey|execute|run|do (?:what|as)|"
    r"and (?:then )?(?:answer|act))\b",
    r"\bprompt injection\b",
)

_ORDERS_ELSEWHERE = (
    # Spanish, Portuguese, Italian, French: accents are gone when Latin text was made plain.
    r"\b(?:ignor[aeor]\w*|olvid[ae]\w*|omit[ae]\w*|esquec\w+|desconsider\w+|descart\w+|dimentic\w+|trascur\w+|"
    r"oubli\w+|neglig\w+)\b"
    r".{0,40}\b(?:instruc\w+|reglas?|indicac\w+|instruco\w*|instrucc?oes|regras?|istruzion\w+|regol\w+|"
    r"instructions?|consignes?|"
    r"regles?|directives?|ordenes|ordens|ordini)",
    r"\b(?:moderador\w*|moderatore|moderateur|moderatrice|clasificador|classificador|classificatore|"
    r"classifieur)\b.{0,60}"
    r"\b(?:aprob\w+|aprov\w+|approv\w+|segur\w+|sicur\w+|inofensiv\w+|sans danger|inoffensi\w+|permitid\w+|"
    r"autoris\w+)",
    r"\b(?:responde?|responda|rispondi|repondez?|reponds|devuelve|devolva|marca|marque|classifica|classez|"
    r"clasifica)\b.{0,40}"
    r"\b(?:segur\w+|sicur\w+|sur|inofensiv\w+|inoffensi\w+|aprob\w+|aprov\w+|approuv\w+|json|falso|faux|false)\b",
    # German, Dutch, Scandinavian.
    r"\b(?:ignorier\w*|vergiss|vergesst|missacht\w*|negeer|vergeet|ignorera|glom|ignorer|glem)\b.{0,40}"
    r"\b(?:anweisung\w*|regeln?|vorgaben?|instruktion\w*|richtlinien|instructies?|regels|instruktioner\w*|regler\w*)",
    r"\b(?:moderator\w*|moderation|system|prufer|klassifikator)\b.{0,60}"
    r"\b(?:freigeben|freigegeben|genehmig\w+|unbedenklich|harmlos|zulassen|goedgekeurd|goedkeuren|veilig|godkand|"
    r"godkendt)",
    r"\b(?:antworte?|stufe|markiere|bewerte|antwoord|markeer)\b.{0,40}\b(?:harmlos|unbedenklich|sicher|erlaubt|"
    r"veilig|json|false)\b",
    # Polish, Czech, Turkish, Indonesian, Vietnamese, Swahili.
    r"\b(?:zignoruj|pomin|zapomnij|ignoruj|zapomen|yoksay|unut|abaikan|lupakan|bo qua|puuza)\b.{0,40}"
    r"\b(?:instrukcj\w*|polecen\w*|zasad\w*|instrukc\w*|pokyn\w*|pravidla|talimat\w*|kural\w*|instruksi|perintah|"
    r"aturan|huong dan|"
    r"chi dan|quy tac|maagizo|maelekezo)",
    r"\b(?:talimat\w*|kural\w*)\b.{0,30}\b(?:yoksay\w*|unut\w*|gormezden)",
    # Russian, Ukrainian, Bulgarian, Greek.
    r"(?:игнорир|забуд|не обращай внимания|пренебрег|ігнор|отмени).{0,40}(?:инструкц|указани|правил|команд|"
    r"інструкц|вказівк)",
    r"(?:модератор|классификатор|система).{0,60}(?:одобр|безопасн|разреш|пропуст|допуст)",
    r"(?:αγν[οό][ηή]σ).{0,40}(?:οδηγ[ιί]|κανόν|κανον)",  # noqa: RUF001  Greek is meant
    # Arabic, Hebrew, Persian, Hindi.
    r"(?:تجاهل|انس|نادیده).{0,40}(?:التعليمات|تعليمات|القواعد|الأوامر|دستور|قوانین)",
    r"(?:התעלם|תתעלם|שכח).{0,40}(?:הוראות|ההוראות|כללים|הכללים)",
    r"(?:निर्देश|नियम|आदेश).{0,40}(?:अनदेखा|भूल|नज़रअंदाज़|नजरअंदाज)|(?:अनदेखा|भूल).{0,40}(?:निर्देश|नियम|आदेश)",
    # Chinese, Japanese, Korean, Thai.
    r"(?:忽略|无视|無視|忽视|忘记|忘記|不要理会|不用理会|跳过).{0,20}(?:指令|指示|规则|規則|提示|要求|说明|命令)",
    r"(?:指示|命令|ルール|規則|プロンプト|設定).{0,12}(?:無視|忘れ|破棄)",
    r"(?:审核|審核|管理员|系统|版主|モデレーター|審査|관리자|심사).{0,40}(?:通过|批准|安全|合规|承認|許可|승인|통과|안전)",
    r"(?:지시|명령|규칙|지침).{0,12}(?:무시|잊)",
    r"(?:เพิกเฉย|ละเว้น|ลืม).{0,30}(?:คำสั่ง|กฎ|คำแนะนำ)",
)

_WORDS = "|".join(
    (*CATEGORIES, "flagged", "violation", "confidence", "verdict", "categories", "addresses_moderator", "outcome")
)
_SHAPES = (
    # A verdict as data, in any notation.
    rf"""\b(?:{_WORDS}|hate speech|self-harm|decision|moderation|label|status|result)\b"""
    r"""["'`*\\]*\s*(?:[:=]|->|=>)\s*["'`*\\]*"""
    r"(?:true|false|null|none|no\b|0|1|\.\d|\{|\[|safe|clean|approved?|allow|pass|ok\b|benign|harmless)",
    rf"\b(?:{_WORDS})\b.{{0,8}}\|.{{0,8}}\b(?:false|no|0)",
    # Lines that only a system writes: the end of a document, the turn of another speaker, the result of a tool.
    r"</?\s*(?:post|text|content|data|documents?|user|system|assistant|human|instructions?|input|message|tool\w*|"
    r"function\w*|"
    r"untrusted\w*|moderation\w*|verdict|thinking|result|answer|prompt|context)\b[^<>]{0,60}>",
    r"<\s*/?\s*[a-z]+(?:[_-][a-z]+)+[^<>]{0,60}>",
    r"<\|[^|<>]{1,40}\|>",
    r"\[/?\s*(?:inst|sys|system|assistant|end|user|developer|admin|mod|moderator|tool|override|"
    r"verdict)\b[^\]]{0,40}\]",
    r"<<\s*/?\s*sys",
    r"(?m)^[\s#>*=_~-]{0,12}(?:system|assistant|human|user|developer|tool|moderator|admin|claude|ai|"
    r"operator)\b[ \w()-]{0,20}[*_]{0,2}"
    r"\s*(?:[:>\]]|$)",
    r"(?m)^\W{0,12}(?:begin|end|start|close)(?: of)?(?: the)? (?:post|data|document|input|user|untrusted|content|"
    r"message|text|"
    r"prompt|instructions?|json|system)",
    r"\bmark [0-9a-f]{6,}",
    r"```\s*(?:json|system|tool|yaml|xml|assistant)?\s*\n?\s*[{\[<]",
    r"[\"'}\]]\s*\}\s*\]?\s*(?:,|;|\n|$).{0,20}(?:now|then|next|system|new|the post|end)",
    r"<!--.{0,200}-->",
    r"\[//\]: #|\[[^\]]{0,80}\]:\s*#",
    r"!\[[^\]]{0,200}\]\(",
)

_DISGUISES = {
    TAGS: "text in invisible characters",
    ENCODED: "an encoded text",
    OVERRIDES: "text set backwards",
    HIDDEN: "invisible characters inside words",
}


@functools.cache
def _patterns() -> tuple[Any, Any]:
    """Orders and shapes, compiled when first needed: linear in the text whatever it is."""
    options = re2.Options()
    options.case_sensitive = False
    options.dot_nl = True
    options.max_mem = 64 << 20
    options.log_errors = False
    orders = "|".join(f"(?:{each})" for each in (*_ORDERS, *_ORDERS_ELSEWHERE))
    shapes = "|".join(f"(?:{each})" for each in _SHAPES)
    return re2.compile(orders, options), re2.compile(shapes, options)


def speaks_to_the_judge(post: Post) -> str | None:
    """Why a person must look at a post, if it is not only meant for other people."""
    why = in_text(post.text)
    if why is None and post.media_url is not None:
        url = in_text(unquote_plus(unquote_plus(post.media_url)).replace("-", " ").replace("_", " "))
        why = None if url is None else f"in its media URL, {url}"
    return why


def in_text(text: str) -> str | None:
    """The same for one text, wherever it came from."""
    orders, shapes = _patterns()
    text = text[:CHARS_MAX].encode("utf-8", "replace").decode()  # RE2 takes no lone surrogates
    read = plain(text)
    for sign, what in _DISGUISES.items():
        if sign in read.signs:
            return f"the post holds {what}"
    # Once as a reader sees it and once as it is: making it plain joins lines and reads other alphabets as Latin.
    raw = unicodedata.normalize("NFKC", text).lower()
    for each in (read.text, raw, *read.others):
        if orders.search(each) is not None:
            return "the post gives orders to its judge"
        if shapes.search(each) is not None:
            return "the post imitates the words of a system or brings a verdict of its own"
    return None
