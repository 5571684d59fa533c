# Options, formats, wide frames, categories, time zones.
import pandas as pd, numpy as np
pd.set_option('display.max_columns', None); pd.set_option('display.width', 120); pd.options.display.float_format = '{:.2f}'.format
df = pd.DataFrame(np.arange(60).reshape(4, 15) / 7, columns=[f'column_{i}' for i in range(15)])
print(df); print(df.T.corr().shape)
s = pd.Series(pd.date_range('2024-03-30', periods=3, tz='Europe/Berlin')); print(s, s.dt.tz_convert('UTC'))
print(pd.Categorical(list('abca')).codes, pd.cut([1, 5, 9], 3), pd.get_dummies(list('ab')))
print(df.to_html()[:24])
df[df > 3]['column_1'][0] = 5
