"""The names that other packages may import from this one, and the module of each."""

from ._async.client import AsyncClient as AsyncClient
from ._sync.client import Client as Client
from .events import ServerEvent as ServerEvent
from .results import DataFile as DataFile
from .results import Feedback as Feedback
from .results import FeedbackVerdict as FeedbackVerdict
from .results import InstanceScores as InstanceScores
from .results import Job as Job
from .results import Label as Label
from .results import LabelScore as LabelScore
from .results import LabelThreshold as LabelThreshold
from .results import LineError as LineError
from .results import ModelDetails as ModelDetails
from .results import ModelInfo as ModelInfo
from .results import Prediction as Prediction
from .results import Predictions as Predictions
from .results import Progress as Progress
from .results import Promotion as Promotion
from .results import Scores as Scores
from .results import Thresholds as Thresholds
from .retries import Retries as Retries
